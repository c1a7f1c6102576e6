import java.io.*;
import java.net.*;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.util.*;

/** java.net and the channels of java.nio, on the loopback interface only. */
public class Sockets {
    static final InetAddress LOOPBACK = loopback();

    static InetAddress loopback() {
        try {
            return InetAddress.getByAddress("localhost", new byte[] {127, 0, 0, 1});
        } catch (UnknownHostException e) {
            throw new AssertionError(e);
        }
    }

    interface Action {
        void run() throws Exception;
    }

    /** A thread whose exception is printed by join. */
    static class Task extends Thread {
        final Action action;
        final String name;
        volatile Exception thrown;

        Task(String name, Action action) {
            this.name = name;
            this.action = action;
            start();
        }

        @Override public void run() {
            try {
                action.run();
            } catch (Exception e) {
                thrown = e;
            }
        }

        void end() throws Exception {
            join();
            System.out.println(name + ": " + describe(thrown));
        }
    }

    static String describe(Exception e) {
        if (e == null) return "ended";
        // Android's library throws a subclass of it.
        return e instanceof IndexOutOfBoundsException ? "bad index" : e.getClass().getName();
    }

    static void check(String name, Action action) {
        try {
            action.run();
            System.out.println(name + ": ended");
        } catch (Exception e) {
            System.out.println(name + ": " + describe(e));
        }
    }

    static ServerSocket server() throws IOException {
        return new ServerSocket(0, 5, LOOPBACK);
    }

    public static void main(String[] args) throws Exception {
        echo();
        errors();
        closing();
        closingConnect();
        options();
        datagrams();
        addresses();
        ipv6();
        selector();
        closedSelector();
        pipe();
        channels();
        datagramChannel();
        interfaces();
    }

    static void echo() throws Exception {
        ServerSocket server = server();
        Task echo = new Task("echo", () -> {
            try (Socket socket = server.accept()) {
                byte[] buffer = new byte[30000];
                int n;
                while ((n = socket.getInputStream().read(buffer)) >= 0) {
                    socket.getOutputStream().write(buffer, 0, n);
                }
                socket.shutdownOutput();
            }
        });
        try (Socket socket = new Socket(LOOPBACK, server.getLocalPort())) {
            System.out.println(socket.getInetAddress().getHostAddress() + " "
                    + (socket.getPort() == server.getLocalPort()) + " " + socket.isConnected());
            Task writer = new Task("writer", () -> {
                byte[] buffer = new byte[50000];
                for (int i = 0; i < 80; i++) {
                    for (int k = 0; k < buffer.length; k += 100) buffer[k] = (byte) (i + k / 100);
                    socket.getOutputStream().write(buffer);
                }
                socket.shutdownOutput();
            });
            byte[] buffer = new byte[70000];
            long sum = 0, total = 0;
            int n;
            while ((n = socket.getInputStream().read(buffer)) >= 0) {
                for (int i = (int) ((100 - total % 100) % 100); i < n; i += 100) sum += buffer[i];
                total += n;
            }
            System.out.println(total + " " + sum + " " + socket.isOutputShutdown());
            writer.end();
            check("write after half-close", () -> socket.getOutputStream().write(1));
        }
        echo.end();
        server.close();
        System.out.println(server.isClosed());
    }

    static void errors() throws Exception {
        ServerSocket server = server();
        server.setSoTimeout(20);
        check("accept with time-out", () -> server.accept());
        Socket client = new Socket(LOOPBACK, server.getLocalPort());
        Socket socket = server.accept();
        socket.setSoTimeout(20);
        check("read with time-out", () -> socket.getInputStream().read());
        client.getOutputStream().write(new byte[] {1, 2, 3});
        byte[] read = new byte[5];
        System.out.println(socket.getInputStream().read(read, 1, 3) + Arrays.toString(read));
        check("bad range", () -> socket.getInputStream().read(read, 3, 3));
        check("negative count", () -> socket.getOutputStream().write(read, 1, -1));
        client.close();
        System.out.println(socket.getInputStream().read());
        int port = server.getLocalPort();
        server.close();
        socket.close();
        check("refused", () -> new Socket(LOOPBACK, port));
        check("refused with time-out", () -> {
            Socket refused = new Socket();
            refused.connect(new InetSocketAddress(LOOPBACK, port), 1000);
        });
        check("closed", () -> socket.getOutputStream().write(1));
        check("no port", () -> new Socket(LOOPBACK, 70000));
        ServerSocket first = server();
        check("in use", () -> new ServerSocket(first.getLocalPort(), 5, LOOPBACK));
        Socket connected = new Socket();
        connected.connect(new InetSocketAddress(LOOPBACK, first.getLocalPort()), 1000);
        System.out.println(connected.isBound() + " " + connected.isConnected());
        connected.close();
        first.close();
    }

    /** Closes something while a thread waits in it. */
    static void closing() throws Exception {
        for (int i = 0; i < 3; i++) {
            ServerSocket server = server();
            if (i == 2) server.setSoTimeout(20000);
            Task accept = new Task("accept", () -> server.accept());
            if (i > 0) awaitRead(accept);
            server.close();
            accept.end();
        }
        for (int i = 0; i < 3; i++) {
            ServerSocket server = server();
            Socket socket = new Socket(LOOPBACK, server.getLocalPort());
            Socket peer = server.accept();
            if (i == 2) socket.setSoTimeout(20000);
            Task read = new Task("read", () -> socket.getInputStream().read());
            if (i > 0) awaitRead(read);
            socket.close();
            read.end();
            System.out.println(peer.getInputStream().read());
            Task write = new Task("write", () -> {
                // The other end does not read: a write waits in the end.
                byte[] buffer = new byte[1 << 16];
                Socket sender = new Socket(LOOPBACK, server.getLocalPort());
                Socket receiver = server.accept();
                Task close = new Task("close", () -> sender.close());
                try {
                    for (;;) sender.getOutputStream().write(buffer);
                } finally {
                    close.join();
                    receiver.close();
                }
            });
            write.end();
            peer.close();
            server.close();
        }
        for (int i = 0; i < 3; i++) {
            DatagramSocket socket = new DatagramSocket(0, LOOPBACK);
            Task receive = new Task("receive",
                    () -> socket.receive(new DatagramPacket(new byte[10], 10)));
            if (i > 0) awaitRead(receive);
            socket.close();
            receive.end();
        }
    }

    /** Closes a socket that connects to a server whose backlog is full. */
    static void closingConnect() throws Exception {
        ServerSocket server = new ServerSocket(0, 1, LOOPBACK);
        SocketAddress to = new InetSocketAddress(LOOPBACK, server.getLocalPort());
        List<Socket> sockets = new ArrayList<>();
        try {
            for (;;) {
                Socket socket = new Socket();
                sockets.add(socket);
                socket.connect(to, 50);
            }
        } catch (SocketTimeoutException e) {
            System.out.println("full");
        }
        for (int timeout : new int[] {0, 20000}) {
            Socket socket = new Socket();
            Task connect = new Task("connect", () -> socket.connect(to, timeout));
            awaitRead(connect);
            socket.close();
            connect.end();
        }
        for (Socket socket : sockets) socket.close();
        server.close();
    }

    /** Lets another thread run for a moment, so that it most likely waits. */
    static void awaitRead(Thread thread) throws Exception {
        Thread.sleep(2);
    }

    static void options() throws Exception {
        ServerSocket server = server();
        server.setReuseAddress(true);
        server.setReceiveBufferSize(20000);
        System.out.println(server.getReuseAddress() + " " + (server.getReceiveBufferSize() > 0));
        Socket socket = new Socket(LOOPBACK, server.getLocalPort());
        socket.setTcpNoDelay(true);
        socket.setKeepAlive(true);
        socket.setSoLinger(true, 7);
        socket.setSoTimeout(1000);
        socket.setOOBInline(true);
        socket.setTrafficClass(8);
        socket.setSendBufferSize(10000);
        System.out.println(socket.getTcpNoDelay() + " " + socket.getKeepAlive() + " "
                + socket.getSoLinger() + " " + socket.getSoTimeout() + " " + socket.getOOBInline()
                + " " + socket.getTrafficClass() + " " + (socket.getSendBufferSize() >= 10000));
        socket.setSoLinger(false, 0);
        socket.setTcpNoDelay(false);
        System.out.println(socket.getSoLinger() + " " + socket.getTcpNoDelay());
        Socket peer = server.accept();
        socket.sendUrgentData(65);
        peer.setSoTimeout(1000);
        socket.getOutputStream().write(66);
        System.out.println(peer.getInputStream().read());
        System.out.println(peer.getRemoteSocketAddress().equals(socket.getLocalSocketAddress()));
        System.out.println(socket.getLocalAddress().getHostAddress());
        socket.close();
        peer.close();
        server.close();
        MulticastSocket multicast = new MulticastSocket(0);
        multicast.setTimeToLive(3);
        multicast.setBroadcast(true);
        System.out.println(multicast.getTimeToLive() + " " + multicast.getBroadcast());
        multicast.close();
    }

    static void datagrams() throws Exception {
        DatagramSocket first = new DatagramSocket(0, LOOPBACK);
        DatagramSocket second = new DatagramSocket(0, LOOPBACK);
        byte[] data = {1, 2, 3, 4};
        DatagramPacket to = new DatagramPacket(data, 1, 3, LOOPBACK, second.getLocalPort());
        first.send(to);
        DatagramPacket from = new DatagramPacket(new byte[10], 10);
        second.receive(from);
        System.out.println(from.getLength() + " " + from.getData()[0] + " "
                + from.getAddress().getHostAddress() + " "
                + (from.getPort() == first.getLocalPort()));
        second.send(new DatagramPacket(new byte[100], 60, LOOPBACK, first.getLocalPort()));
        from = new DatagramPacket(new byte[10], 2, 8);
        first.receive(from);
        System.out.println(from.getLength() + " " + from.getOffset());
        first.setSoTimeout(20);
        check("receive with time-out", () -> first.receive(new DatagramPacket(new byte[1], 1)));
        first.connect(LOOPBACK, second.getLocalPort());
        System.out.println(first.isConnected() + " " + first.getInetAddress().getHostAddress());
        first.send(new DatagramPacket(data, 4));
        second.receive(from = new DatagramPacket(new byte[10], 10));
        System.out.println(from.getLength());
        first.disconnect();
        System.out.println(first.isConnected());
        first.send(new DatagramPacket(new byte[0], 0, LOOPBACK, second.getLocalPort()));
        second.receive(from);
        System.out.println(from.getLength());
        first.close();
        second.close();
        check("closed", () -> first.send(to));
    }

    static void addresses() throws Exception {
        for (String text : new String[] {"127.0.0.1", "10.1.2.255", "::1", "fe80::1234",
                "[2001:db8::7]", "::ffff:1.2.3.4", "0.0.0.0", "ff02::1", "224.0.0.1"}) {
            InetAddress address = InetAddress.getByName(text);
            System.out.println(address.getClass().getSimpleName() + " "
                    + Arrays.toString(address.getAddress()) + " " + address.isLoopbackAddress()
                    + address.isAnyLocalAddress() + address.isLinkLocalAddress()
                    + address.isMulticastAddress() + address.isSiteLocalAddress());
        }
        System.out.println(InetAddress.getByName("192.168.0.20").getHostAddress());
        System.out.println(InetAddress.getByName("192.168.0.20"));
        System.out.println(InetAddress.getByName("localhost").isLoopbackAddress());
        for (InetAddress address : InetAddress.getAllByName("localhost")) {
            if (!address.isLoopbackAddress() || !address.getHostName().equals("localhost")) {
                System.out.println(address);
            }
        }
        System.out.println(InetAddress.getLocalHost() != null);
        System.out.println(InetAddress.getByName(null).isLoopbackAddress());
        check("unknown", () -> InetAddress.getByName("no such host"));
        check("no address", () -> InetAddress.getByName("1:2:3"));
        check("length", () -> InetAddress.getByAddress(new byte[5]));
        System.out.println(new InetSocketAddress("127.0.0.1", 80).isUnresolved());
        Inet6Address scoped = Inet6Address.getByAddress(null,
                InetAddress.getByName("fe80::5").getAddress(), 1);
        System.out.println(scoped.getScopeId());
    }

    static void ipv6() throws Exception {
        InetAddress loopback = InetAddress.getByName("::1");
        ServerSocket server;
        try {
            server = new ServerSocket(0, 5, loopback);
        } catch (IOException e) {
            // This machine has no address of IPv6; neither has the other VM.
            return;
        }
        Socket socket = new Socket(loopback, server.getLocalPort());
        Socket peer = server.accept();
        System.out.println(peer.getInetAddress().equals(loopback) + " "
                + socket.getInetAddress().equals(loopback) + " "
                + server.getInetAddress().equals(loopback));
        socket.close();
        peer.close();
        server.close();
    }

    /** A server of echoes by a selector, and clients. */
    static void selector() throws Exception {
        Selector selector = Selector.open();
        ServerSocketChannel server = ServerSocketChannel.open();
        server.socket().bind(new InetSocketAddress(LOOPBACK, 0));
        server.configureBlocking(false);
        System.out.println(server.accept());
        server.register(selector, SelectionKey.OP_ACCEPT);
        System.out.println(selector.selectNow() + " " + selector.select(5));
        int port = server.socket().getLocalPort();
        Task client = new Task("client", () -> {
            for (int i = 0; i < 3; i++) {
                try (Socket socket = new Socket(LOOPBACK, port)) {
                    socket.getOutputStream().write(("hello " + i).getBytes());
                    byte[] buffer = new byte[20];
                    int n = 0;
                    while (n < 7) n += socket.getInputStream().read(buffer, n, 20 - n);
                    System.out.println(new String(buffer, 0, n));
                }
            }
        });
        ByteBuffer buffer = ByteBuffer.allocateDirect(100);
        int ended = 0;
        while (ended < 3) {
            selector.select();
            for (Iterator<SelectionKey> keys = selector.selectedKeys().iterator();
                    keys.hasNext();) {
                SelectionKey key = keys.next();
                keys.remove();
                if (key.isAcceptable()) {
                    SocketChannel channel = server.accept();
                    if (channel == null) continue;
                    channel.configureBlocking(false);
                    channel.register(selector, SelectionKey.OP_READ);
                } else if (key.isReadable()) {
                    SocketChannel channel = (SocketChannel) key.channel();
                    buffer.clear();
                    int n = channel.read(buffer);
                    if (n < 0) {
                        channel.close();
                        ended++;
                    } else {
                        byte[] text = new byte[n];
                        buffer.flip();
                        buffer.get(text);
                        key.attach(ByteBuffer.wrap(text));
                        key.interestOps(SelectionKey.OP_WRITE);
                    }
                } else if (key.isWritable()) {
                    ByteBuffer left = (ByteBuffer) key.attachment();
                    ((SocketChannel) key.channel()).write(left);
                    if (!left.hasRemaining()) key.interestOps(SelectionKey.OP_READ);
                }
            }
        }
        client.end();
        Task waiting = new Task("selecting", () -> System.out.println(selector.select()));
        awaitRead(waiting);
        selector.wakeup();
        waiting.end();
        selector.wakeup();
        System.out.println(selector.select() + " " + selector.keys().size());
        server.close();
        selector.selectNow();
        System.out.println(selector.keys().size());
        selector.close();
        System.out.println(selector.isOpen());
    }

    static void closedSelector() throws Exception {
        Selector selector = Selector.open();
        Task waiting = new Task("closed selector", () -> System.out.println(selector.select()));
        awaitRead(waiting);
        selector.close();
        waiting.join();
        System.out.println(selector.isOpen());
        check("select", () -> selector.select());
    }

    static void pipe() throws Exception {
        Pipe pipe = Pipe.open();
        Task writer = new Task("sink", () -> {
            ByteBuffer[] parts = {ByteBuffer.wrap("one ".getBytes()),
                ByteBuffer.wrap("two".getBytes())};
            System.out.println(pipe.sink().write(parts));
            pipe.sink().close();
        });
        writer.end();
        ByteBuffer first = ByteBuffer.allocate(3), second = ByteBuffer.allocateDirect(10);
        System.out.println(pipe.source().read(new ByteBuffer[] {first, second}));
        second.flip();
        byte[] rest = new byte[second.remaining()];
        second.get(rest);
        System.out.println(new String(first.array()) + "," + new String(rest));
        second.clear();
        System.out.println(pipe.source().read(second));
        pipe.source().configureBlocking(false);
        pipe.source().close();
        System.out.println(pipe.source().isOpen());
    }

    static void channels() throws Exception {
        ServerSocketChannel server = ServerSocketChannel.open();
        server.socket().bind(new InetSocketAddress(LOOPBACK, 0));
        SocketChannel client = SocketChannel.open();
        client.configureBlocking(false);
        client.connect(new InetSocketAddress(LOOPBACK, server.socket().getLocalPort()));
        SocketChannel peer = server.accept();
        int port = server.socket().getLocalPort();
        while (!client.finishConnect()) Thread.yield();
        System.out.println(client.isConnected() + " " + peer.isBlocking());
        System.out.println(client.read(ByteBuffer.allocate(5)));
        client.configureBlocking(true);
        ByteBuffer[] parts = {ByteBuffer.wrap(new byte[] {1, 2}), ByteBuffer.allocateDirect(3)};
        System.out.println(peer.write(parts));
        ByteBuffer read = ByteBuffer.allocate(10);
        while (read.position() < 5) client.read(read);
        System.out.println(Arrays.toString(read.array()));
        File file = File.createTempFile("Sockets", null);
        try (RandomAccessFile from = new RandomAccessFile(file, "rw")) {
            from.write(new byte[] {1, 2, 3, 4, 5, 6});
            System.out.println(from.getChannel().transferTo(2, 100, peer));
            read.clear();
            while (read.position() < 4) client.read(read);
            System.out.println(Arrays.toString(read.array()));
        }
        file.delete();
        peer.socket().shutdownOutput();
        System.out.println(client.read(read));
        Task waiting = new Task("channel", () -> peer.read(ByteBuffer.allocate(5)));
        awaitRead(waiting);
        peer.close();
        waiting.end();
        Task accepting = new Task("server channel", () -> server.accept());
        awaitRead(accepting);
        server.close();
        accepting.end();
        client.close();
        check("closed channel", () -> client.read(read));
        SocketChannel refused = SocketChannel.open();
        check("refused channel", () -> refused.connect(new InetSocketAddress(LOOPBACK, port)));
        refused.close();
    }

    static void datagramChannel() throws Exception {
        DatagramChannel first = DatagramChannel.open(), second = DatagramChannel.open();
        first.socket().bind(new InetSocketAddress(LOOPBACK, 0));
        second.socket().bind(new InetSocketAddress(LOOPBACK, 0));
        System.out.println(first.send(ByteBuffer.wrap(new byte[] {5, 6, 7}),
                second.socket().getLocalSocketAddress()));
        ByteBuffer received = ByteBuffer.allocateDirect(10);
        SocketAddress from = second.receive(received);
        System.out.println(received.position() + " " + received.get(1) + " "
                + from.equals(first.socket().getLocalSocketAddress()));
        second.configureBlocking(false);
        System.out.println(second.receive(received));
        second.connect(from);
        System.out.println(second.isConnected() + " "
                + second.write(ByteBuffer.wrap(new byte[] {9})));
        ByteBuffer back = ByteBuffer.allocate(4);
        first.receive(back);
        System.out.println(back.get(0));
        second.disconnect();
        System.out.println(second.isConnected());
        first.close();
        second.close();
    }

    static void interfaces() throws Exception {
        NetworkInterface loopback = null;
        int n = 0;
        for (NetworkInterface one : Collections.list(NetworkInterface.getNetworkInterfaces())) {
            if (one.isLoopback()) loopback = one;
            NetworkInterface same = NetworkInterface.getByName(one.getName());
            if (!one.equals(same)) System.out.println(one + " " + same);
            n++;
        }
        System.out.println(n > 0);
        System.out.println(loopback.getName() + " " + loopback.getIndex() + " "
                + loopback.isUp() + " " + loopback.isPointToPoint() + " "
                + (loopback.getMTU() > 0) + " " + loopback.getHardwareAddress());
        System.out.println(Collections.list(loopback.getInetAddresses()).contains(LOOPBACK));
        for (InterfaceAddress address : loopback.getInterfaceAddresses()) {
            if (address.getAddress().equals(LOOPBACK)) {
                System.out.println(address.getNetworkPrefixLength());
            }
        }
        System.out.println(NetworkInterface.getByInetAddress(LOOPBACK).equals(loopback));
        System.out.println(NetworkInterface.getByName("none such"));
    }
}

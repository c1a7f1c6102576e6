import java.util.zip.*;
import java.io.*;
import java.nio.charset.*;
import java.nio.*;
import java.nio.channels.*;

/** Compression, files, charsets, buffers and serialization. */
public class Files {
    public static void main(String[] a) throws Exception {
        byte[] d = new byte[100000];
        for (int i = 0; i < d.length; i++) d[i] = (byte) (i * i % 251);
        ByteArrayOutputStream o = new ByteArrayOutputStream();
        GZIPOutputStream g = new GZIPOutputStream(o);
        g.write(d);
        g.close();
        GZIPInputStream in = new GZIPInputStream(new ByteArrayInputStream(o.toByteArray()));
        int n = 0, s = 0, r;
        byte[] b = new byte[777];
        while ((r = in.read(b)) > 0) {
            for (int i = 0; i < r; i++) s += b[i];
            n += r;
        }
        System.out.println(n + " " + s);
        CRC32 c = new CRC32();
        c.update(d);
        Adler32 ad = new Adler32();
        ad.update(d);
        System.out.println(c.getValue() + " " + ad.getValue());
        try {
            new InflaterInputStream(new ByteArrayInputStream(new byte[]{1,2,3,4})).read();
        } catch (IOException e) {
            System.out.println("IOE");
        }
        File f = File.createTempFile("vmn", ".txt");
        Writer w = new OutputStreamWriter(new FileOutputStream(f), "UTF-16");
        w.write("häß€\n");
        w.close();
        System.out.println(f.length() + " "
                + new BufferedReader(new InputStreamReader(new FileInputStream(f),
                        "UTF-16")).readLine());
        RandomAccessFile ra = new RandomAccessFile(f, "rw");
        ra.seek(2);
        System.out.println(ra.read());
        ra.setLength(4);
        try (FileLock lock = ra.getChannel().lock(1, 2, false)) {
            System.out.println(lock.isValid() + " " + lock.position() + " " + lock.size());
            ra.getChannel().tryLock(2, 5, false);
        } catch (OverlappingFileLockException e) {
            System.out.println("overlapping");
        }
        System.out.println((f.getTotalSpace() >= f.getFreeSpace()) + " "
                + (f.getFreeSpace() >= f.getUsableSpace()) + " " + (f.getTotalSpace() > 0));
        FileChannel channel = ra.getChannel();
        System.out.println(channel.write(channel.map(FileChannel.MapMode.READ_ONLY, 0, 0)));
        ra.close();
        System.out.println(f.length() + " " + f.exists() + f.isDirectory() + f.delete()
                + f.exists());
        File parent = f.getParentFile().getCanonicalFile();
        System.out.println(new File(f, "../no/./such/../file").getCanonicalPath()
                .equals(new File(parent, "no/file").getPath()));
        System.out.println(new File("/no/such/../../proc/./none").getCanonicalPath() + " "
                + new File("/no/such//directory/").getCanonicalFile());
        ByteBuffer bb = ByteBuffer.allocateDirect(16);
        bb.putInt(0x01020304).putLong(-2L).flip();
        System.out.println(bb.getInt() + " " + bb.getLong() + " "
                + bb.order(ByteOrder.LITTLE_ENDIAN).getInt(0));
        CharBuffer cb = Charset.forName("UTF-8").decode(ByteBuffer.wrap("aé€".getBytes("UTF-8")));
        System.out.println(cb);
        try {
            new FileInputStream("/no/such");
        } catch (FileNotFoundException e) {
            System.out.println("FNFE");
        }
        System.out.println(new BufferedReader(new StringReader("x\ny")).readLine());
        ByteArrayOutputStream so = new ByteArrayOutputStream();
        new ObjectOutputStream(so).writeObject(new java.util.ArrayList<String>(java.util.Arrays.asList("p", "q")));
        System.out.println(new ObjectInputStream(new ByteArrayInputStream(so.toByteArray())).readObject());
    }
}

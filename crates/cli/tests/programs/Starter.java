/** A class that no zygote can initialize: it starts a thread. */
public class Starter {
    static {
        Thread thread = new Thread() {
            @Override
            public void run() {
                synchronized (this) {
                    while (true) {
                        try {
                            wait();
                        } catch (InterruptedException e) {
                            return;
                        }
                    }
                }
            }
        };
        thread.setDaemon(true);
        thread.start();
    }
}

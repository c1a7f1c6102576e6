import java.io.*;
import java.security.*;
import java.util.logging.*;

/** Files that the class library reads: logging and security begin with their properties. */
public class Resources {
    public static void main(String[] a) throws Exception {
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        System.setErr(new PrintStream(errors, true));
        System.out.println(Security.getProperty("no.such"));
        System.out.println(errors.size());
        Logger logger = Logger.getLogger("app");
        Handler[] handlers = Logger.getLogger("").getHandlers();
        System.out.println(handlers.length);
        // Dates take too long where each object is a collection.
        handlers[0].setFormatter(new Formatter() {
            @Override
            public String format(LogRecord record) {
                return record.getLevel() + ": " + record.getMessage() + "\n";
            }
        });
        logger.warning("the disk is full");
        logger.fine("nothing has happened");
        System.out.println(errors);
    }
}

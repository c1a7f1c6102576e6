import java.io.PrintStream;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Runs a class of JUnit tests: Suite [-v] CLASS
 *
 * <p>Prints a line for each test: its name, `pass` or `fail`, and the exception. The last line is
 * `end`, unless a test ends the process. What tests print goes to standard error, and so does the
 * stack trace of each failure with -v.
 */
public class Suite extends RunListener {
    private final PrintStream results;
    private final String suite;
    private final boolean traces;
    private String failure;

    private Suite(PrintStream results, String suite, boolean traces) {
        this.results = results;
        this.suite = suite;
        this.traces = traces;
    }

    public static void main(String[] args) throws Exception {
        PrintStream results = System.out;
        System.setOut(System.err);
        String suite = args[args.length - 1];
        JUnitCore core = new JUnitCore();
        core.addListener(new Suite(results, suite, args[0].equals("-v")));
        core.run(Class.forName(suite));
        results.println("end");
        results.flush();
        // Tests leave threads behind.
        System.exit(0);
    }

    @Override
    public void testStarted(Description test) {
        failure = null;
    }

    @Override
    public void testFailure(Failure failed) {
        // One line, of which the first one says enough.
        failure = failed.getException().toString().replaceAll("\\s+", " ");
        if (traces) {
            failed.getException().printStackTrace();
        }
        if (failed.getDescription().getMethodName() == null) {
            // The class as a whole
            testFinished(failed.getDescription());
        }
    }

    @Override
    public void testFinished(Description test) {
        results.println(name(test) + (failure == null ? " pass" : " fail " + failure));
        results.flush();
    }

    /** CLASS.test, or CLASS/Other.test if the tests are another class's. */
    private String name(Description test) {
        String of = test.getClassName();
        String name = of.equals(suite) ? suite : suite + "/" + of.substring(of.lastIndexOf('.') + 1);
        return test.getMethodName() == null
                ? name
                : name + "." + test.getMethodName().replaceAll("\\s", "_");
    }
}

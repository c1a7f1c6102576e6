import com.android.dx.command.dexer.DxContext;
import com.android.dx.command.dexer.Main;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;
import org.jf.smali.Smali;
import org.jf.smali.SmaliOptions;

/**
 * Builds many of ART's run-tests in one virtual machine: Build RUNTIME.jar TESTS OUT NAME...
 *
 * <p>OUT/NAME then has the dex files of the test in the order of its class path, by their names:
 * 1.dex of its assembler files, 2.dex of its Java files, 3.dex and 4.dex of Java and assembler files
 * of the second dex file. A test that cannot be built has the first error in OUT/NAME/failure.
 */
public class Build {
    private final String runtime;
    private final Path sources;
    private final Path out;

    private Build(String runtime, Path sources, Path out) {
        this.runtime = runtime;
        this.sources = sources;
        this.out = out;
    }

    public static void main(String[] args) throws Exception {
        Path out = Path.of(args[2]);
        // Tests are complete when they appear.
        Path part = Files.createTempDirectory(out, "part");
        ExecutorService threads =
                Executors.newFixedThreadPool(Runtime.getRuntime().availableProcessors());
        for (String name : Arrays.asList(args).subList(3, args.length)) {
            threads.execute(() -> {
                Path to = part.resolve(name);
                Build build = new Build(args[0], Path.of(args[1], name), to);
                try {
                    Files.createDirectory(to);
                    build.run();
                    delete(to.resolve("work"));
                    Files.move(to, out.resolve(name));
                } catch (Exception e) {
                    throw new IllegalStateException(name, e);
                }
            });
        }
        threads.shutdown();
        threads.awaitTermination(1, TimeUnit.HOURS);
        delete(part);
    }

    private void run() throws IOException {
        try {
            java();
            smali("smali", "1.dex");
            smali("smali-multidex", "4.dex");
        } catch (Failure e) {
            Files.writeString(out.resolve("failure"), e.getMessage().strip() + "\n");
        }
    }

    private void java() throws IOException {
        Path first = work("classes");
        Path second = work("classes2");
        String other = sources.resolve("src-multidex").toString();
        javac(first, "-implicit:none", files("src", ".java"), other);
        javac(first, "-implicit:none", files("src-art", ".java"), other);
        String main = sources.resolve("src").toString();
        javac(second, "-implicit:none", files("src-multidex", ".java"), main);
        javac(first, "-implicit:class", files("src2", ".java"), first.toString());
        dx(first, "2.dex");
        dx(second, "3.dex");
    }

    private void javac(Path to, String implicit, List<String> files, String classpath) {
        if (files.isEmpty()) {
            return;
        }
        List<String> args = new ArrayList<>(List.of(
                "-source", "8", "-target", "8", "-bootclasspath", runtime, "-encoding", "UTF-8",
                "-g", "-nowarn", "-proc:none", "-XDuseUnsharedTable", implicit,
                "-classpath", classpath, "-d", to.toString()));
        args.addAll(files);
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        if (compiler.run(null, errors, errors, args.toArray(new String[0])) != 0) {
            throw failure("javac", errors, ": error: ");
        }
    }

    private void dx(Path classes, String name) throws IOException {
        if (files(classes, ".class").isEmpty()) {
            return;
        }
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        DxContext context = new DxContext(errors, errors);
        Main.Arguments arguments = new Main.Arguments(context);
        arguments.coreLibrary = true;
        arguments.minSdkVersion = 26;
        arguments.outName = out.resolve(name).toString();
        // Names of classes begin below the current directory, as dx wants.
        arguments.strictNameCheck = false;
        arguments.fileNames = new String[] {classes.toString()};
        arguments.makeOptionsObjects();
        int result;
        try {
            result = new Main(context).runDx(arguments);
        } catch (RuntimeException e) {
            throw new Failure("dx: " + e);
        }
        if (result != 0) {
            throw failure("dx", errors, "");
        }
    }

    private void smali(String directory, String name) throws IOException {
        List<String> files = new ArrayList<>(files(directory, ".smali"));
        if (files.isEmpty()) {
            return;
        }
        SmaliOptions options = new SmaliOptions();
        options.apiLevel = 28;
        options.jobs = 1;
        options.outputDexFile = out.resolve(name).toString();
        try {
            if (!Smali.assemble(options, files)) {
                throw new Failure("smali: refused");
            }
        } catch (RuntimeException e) {
            throw new Failure("smali: " + e);
        }
    }

    /** The first line of a tool's output that has a marker, without directories. */
    private Failure failure(String tool, ByteArrayOutputStream output, String marker) {
        String text = output.toString(StandardCharsets.UTF_8);
        String line = text.lines().filter(one -> one.contains(marker) && !one.isBlank()).findFirst()
                .orElse(text.strip());
        return new Failure(tool + ": " + line.replace(sources + File.separator, ""));
    }

    private Path work(String name) throws IOException {
        return Files.createDirectories(out.resolve("work").resolve(name));
    }

    private List<String> files(String directory, String end) throws IOException {
        return files(sources.resolve(directory), end);
    }

    private static List<String> files(Path directory, String end) throws IOException {
        if (!Files.isDirectory(directory)) {
            return List.of();
        }
        try (Stream<Path> paths = Files.walk(directory)) {
            return paths.map(Path::toString).filter(path -> path.endsWith(end)).sorted()
                    .collect(Collectors.toList());
        }
    }

    private static void delete(Path directory) throws IOException {
        if (!Files.exists(directory)) {
            return;
        }
        try (Stream<Path> paths = Files.walk(directory)) {
            for (Path path : paths.sorted(Comparator.reverseOrder()).collect(Collectors.toList())) {
                Files.delete(path);
            }
        }
    }

    private static class Failure extends RuntimeException {
        Failure(String message) {
            super(message);
        }
    }
}

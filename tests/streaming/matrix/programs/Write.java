// Writes by the two families of Java's library: Write OUT old|new
import java.io.*;
import java.nio.*;
import java.nio.channels.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;

public class Write {
    public static void main(String[] arguments) throws IOException {
        if (arguments[1].equals("old")) {
            try (PrintWriter out = new PrintWriter(new BufferedWriter(new FileWriter(arguments[0])))) {
                for (int i = 0; i < 1500; i++) out.println(i + " from a writer of Java");
            }
            return;
        }
        try (FileChannel out = FileChannel.open(Path.of(arguments[0]), StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            for (int i = 0; i < 50; i++)
                out.write(ByteBuffer.wrap((i + " from a channel of Java\n").repeat(30).getBytes(StandardCharsets.UTF_8)));
        }
    }
}

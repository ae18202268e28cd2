// Reads by both families of Java's library, whole and mapped: Read IN OUT
import java.io.*;
import java.nio.*;
import java.nio.channels.*;
import java.nio.file.*;
import java.util.*;

public class Read {
    public static void main(String[] arguments) throws IOException {
        Path path = Path.of(arguments[0]);
        try (PrintWriter out = new PrintWriter(arguments[1])) {
            int lines = 0;
            try (BufferedReader in = new BufferedReader(new FileReader(arguments[0]))) {
                for (String line; (line = in.readLine()) != null; lines++) if (lines % 50 == 0) out.println(line);
            }
            byte[] whole = Files.readAllBytes(path);
            try (FileChannel channel = FileChannel.open(path)) {
                MappedByteBuffer map = channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size());
                byte[] mapped = new byte[map.remaining()];
                map.get(mapped);
                out.println(lines + " " + whole.length + " " + Arrays.equals(whole, mapped) + " " + Files.size(path));
            }
        }
    }
}

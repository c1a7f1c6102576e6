import java.math.BigInteger;
import java.security.MessageDigest;
import java.util.Arrays;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Digests of messages, and authentication with keys. */
public class Digests {
    static String hex(byte[] bytes) {
        return new BigInteger(1, bytes).toString(16);
    }

    public static void main(String[] a) throws Exception {
        byte[] message = "What do ya want for nothing?".getBytes("UTF-8");
        for (String name : new String[]{"MD5", "SHA-1", "SHA-256", "SHA-384", "SHA-512"}) {
            MessageDigest digest = MessageDigest.getInstance(name);
            digest.update(message, 0, 10);
            MessageDigest other = (MessageDigest) digest.clone();
            digest.update(message, 10, message.length - 10);
            System.out.println(name + " " + hex(digest.digest()) + " " + hex(other.digest()));
        }
        String[] names = {"HmacMD5", "HmacSHA1", "HmacSHA256", "HmacSHA384", "HmacSHA512"};
        // Shorter than a block, as long as one, and longer than any.
        for (int length : new int[]{1, 64, 128, 131}) {
            byte[] key = new byte[length];
            Arrays.fill(key, (byte) 0xaa);
            for (String name : names) {
                Mac mac = Mac.getInstance(name);
                mac.init(new SecretKeySpec(key, name));
                mac.update(message[0]);
                String first = hex(mac.doFinal(message));
                System.out.println(name + " " + first + " " + hex(mac.doFinal(message)));
            }
        }
    }
}

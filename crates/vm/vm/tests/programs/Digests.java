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
        // Keys shorter than a block, as long as one, and longer.
        String[] names = {"HmacMD5", "HmacSHA1", "HmacSHA256", "HmacSHA384", "HmacSHA512"};
        int[] lengths = {1, 64, 65, 128, 131};
        for (int nth = 0; nth < names.length; nth++) {
            byte[] key = new byte[lengths[nth]];
            Arrays.fill(key, (byte) 0xaa);
            Mac mac = Mac.getInstance(names[nth]);
            mac.init(new SecretKeySpec(key, names[nth]));
            mac.update(message[0]);
            String first = hex(mac.doFinal(message));
            System.out.println(names[nth] + " " + first + " " + hex(mac.doFinal(message)));
        }
    }
}

// One object with AWS's SDK for Java.

import java.net.URI;
import software.amazon.awssdk.http.apache5.Apache5HttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.S3Configuration;

public class Get {
    public static void main(String[] words) {
        S3Configuration style = S3Configuration.builder().pathStyleAccessEnabled(true).build();
        // By default the SDK takes this HTTP client, but it cannot choose while there are two.
        S3Client client = S3Client.builder().endpointOverride(URI.create(words[0])).region(Region.US_EAST_1)
                .httpClient(Apache5HttpClient.create()).serviceConfiguration(style).build();
        int got = client.getObjectAsBytes(get -> get.bucket(words[1]).key(words[2])).asByteArray().length;
        if (got != Integer.parseInt(words[3])) {
            throw new AssertionError(got + " bytes");
        }
    }
}

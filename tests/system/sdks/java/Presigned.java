// AWS's SDK for Java: URLs that it presigns, used by a plain HTTP client, and its own uploads with trailing checksums.

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import software.amazon.awssdk.awscore.presigner.PresignedRequest;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.http.urlconnection.UrlConnectionHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.S3Configuration;
import software.amazon.awssdk.services.s3.model.CompletedPart;
import software.amazon.awssdk.services.s3.model.ObjectCannedACL;
import software.amazon.awssdk.services.s3.presigner.S3Presigner;

public class Presigned {
    static final String BODY = "half a pound of sugar";
    /** What Java's client sets by itself. */
    static final Set<String> OF_TRANSPORT = Set.of("host", "content-length", "connection");

    /** The answer to a presigned request, with the headers that were signed along. */
    static HttpResponse<String> sent(PresignedRequest signed, String body) throws Exception {
        HttpRequest.Builder request = HttpRequest.newBuilder(signed.url().toURI());
        request.method(signed.httpRequest().method().name(), BodyPublishers.ofString(body));
        signed.signedHeaders().forEach((name, values) -> {
            if (!OF_TRANSPORT.contains(name.toLowerCase())) {
                values.forEach(value -> request.header(name, value));
            }
        });
        HttpResponse<String> response = HttpClient.newHttpClient().send(request.build(), BodyHandlers.ofString());
        if (response.statusCode() != 200) {
            throw new AssertionError(response.statusCode() + " " + response.body());
        }
        return response;
    }

    static void equal(Object is, Object should) {
        if (!should.equals(is)) {
            throw new AssertionError(is + " should be " + should);
        }
    }

    public static void main(String[] words) throws Exception {
        URI endpoint = URI.create(words[0]);
        String bucket = words[1];
        S3Configuration style = S3Configuration.builder().pathStyleAccessEnabled(true).build();
        S3Client client = S3Client.builder().endpointOverride(endpoint).region(Region.US_EAST_1)
                .httpClient(UrlConnectionHttpClient.create()).serviceConfiguration(style).build();
        S3Presigner signer = S3Presigner.builder().endpointOverride(endpoint).region(Region.US_EAST_1)
                .serviceConfiguration(style).build();
        Duration minute = Duration.ofMinutes(1);

        sent(signer.presignPutObject(put -> put.signatureDuration(minute).putObjectRequest(request -> request
                .bucket(bucket).key("java/put").metadata(Map.of("colour", "blue")).acl(ObjectCannedACL.PRIVATE))), BODY);
        equal(client.headObject(head -> head.bucket(bucket).key("java/put")).metadata().get("colour"), "blue");
        equal(sent(signer.presignGetObject(get -> get.signatureDuration(minute)
                .getObjectRequest(request -> request.bucket(bucket).key("java/put"))), "").body(), BODY);

        String key = "java/parts";
        String upload = client.createMultipartUpload(create -> create.bucket(bucket).key(key)).uploadId();
        HttpResponse<String> part = sent(signer.presignUploadPart(put -> put.signatureDuration(minute)
                .uploadPartRequest(request -> request.bucket(bucket).key(key).uploadId(upload).partNumber(1))), BODY);
        CompletedPart completed =
                CompletedPart.builder().partNumber(1).eTag(part.headers().firstValue("etag").orElseThrow()).build();
        client.completeMultipartUpload(complete -> complete.bucket(bucket).key(key).uploadId(upload)
                .multipartUpload(parts -> parts.parts(List.of(completed))));

        client.putObject(put -> put.bucket(bucket).key("java/own"), RequestBody.fromString(BODY));
        equal(client.getObjectAsBytes(get -> get.bucket(bucket).key("java/own")).asUtf8String(), BODY);
        System.out.println("all answered as AWS answers");
    }
}

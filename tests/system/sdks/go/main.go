// AWS's SDK for Go: URLs that it presigns, used by a plain HTTP client, and its own uploads with trailing checksums.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

const body = "half a pound of flour"

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// sent is the answer to a presigned request, with the headers that were signed along.
func sent(method, url string, signed http.Header, body string) (string, http.Header) {
	request := must(http.NewRequest(method, url, strings.NewReader(body)))
	for name, values := range signed {
		if name != "Host" {
			request.Header[name] = values
		}
	}
	response := must(http.DefaultClient.Do(request))
	defer response.Body.Close()
	text := string(must(io.ReadAll(response.Body)))
	if response.StatusCode != http.StatusOK {
		log.Fatalf("%s %s: %d %s", method, url, response.StatusCode, text)
	}
	return text, response.Header
}

func equal(what, is, should string) {
	if is != should {
		log.Fatalf("%s is %q and should be %q", what, is, should)
	}
}

func main() {
	endpoint, bucket := os.Args[1], aws.String(os.Args[2])
	keys := credentials.NewStaticCredentialsProvider(os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), "")
	client := s3.New(s3.Options{
		BaseEndpoint: aws.String(endpoint), Region: "us-east-1", Credentials: keys, UsePathStyle: true, RetryMaxAttempts: 1,
	})
	signer, ctx := s3.NewPresignClient(client), context.Background()

	key := aws.String("go/put")
	put := must(signer.PresignPutObject(ctx, &s3.PutObjectInput{
		Bucket: bucket, Key: key, Metadata: map[string]string{"colour": "blue"}, ACL: types.ObjectCannedACLPrivate,
	}))
	sent(put.Method, put.URL, put.SignedHeader, body)
	head := must(client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: bucket, Key: key}))
	equal("the metadata", head.Metadata["colour"], "blue")
	get := must(signer.PresignGetObject(ctx, &s3.GetObjectInput{
		Bucket: bucket, Key: key, ChecksumMode: types.ChecksumModeEnabled,
	}))
	text, _ := sent(get.Method, get.URL, get.SignedHeader, "")
	equal("the object", text, body)

	key = aws.String("go/parts")
	upload := must(client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: bucket, Key: key}))
	part := must(signer.PresignUploadPart(ctx, &s3.UploadPartInput{
		Bucket: bucket, Key: key, UploadId: upload.UploadId, PartNumber: aws.Int32(1),
	}))
	_, headers := sent(part.Method, part.URL, part.SignedHeader, body)
	parts := []types.CompletedPart{{PartNumber: aws.Int32(1), ETag: aws.String(headers.Get("ETag"))}}
	must(client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: bucket, Key: key, UploadId: upload.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	}))

	must(client.PutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: aws.String("go/own"), Body: bytes.NewReader([]byte(body))}))
	own := must(client.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: aws.String("go/own")}))
	equal("the object", string(must(io.ReadAll(own.Body))), body)
	fmt.Println("all answered as AWS answers")
}

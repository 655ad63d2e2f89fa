// One object with AWS's SDK for Go.
package main

import (
	"context"
	"io"
	"log"
	"os"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

func main() {
	keys := credentials.NewStaticCredentialsProvider(os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), "")
	client := s3.New(s3.Options{
		BaseEndpoint: aws.String(os.Args[1]), Region: "us-east-1", Credentials: keys, UsePathStyle: true,
	})
	got, err := client.GetObject(context.Background(), &s3.GetObjectInput{
		Bucket: aws.String(os.Args[2]), Key: aws.String(os.Args[3]),
	})
	if err != nil {
		log.Fatal(err)
	}
	body, err := io.ReadAll(got.Body)
	if err != nil || strconv.Itoa(len(body)) != os.Args[4] {
		log.Fatal(len(body), " bytes, ", err)
	}
}

// Command hello is the smallest program a test can put into an image.
package main

import "os"

func main() { _, _ = os.Stdout.WriteString("hello\n") }

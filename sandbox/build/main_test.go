package build

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"testing"
)

// The test binary is also another process that wants an entry of a cache.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "test-entry" {
		if err := fillEntry(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fillEntry begins to fill an entry, says so, and goes on when it is told.
func fillEntry(dir string) error {
	_, err := Cache{Dir: dir}.Entry(context.Background(), "kind/name", func(_ context.Context, dir string) error {
		fmt.Println("filling")
		_, err := bufio.NewReader(os.Stdin).ReadByte()
		if err == nil {
			err = os.WriteFile(dir+"/file", []byte("by the other process"), 0o644)
		}
		return err
	})
	return err
}

package demo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// everywhere are the programs that the demo runs and every Debian has, by packages without which it is
// none. What else it runs, it has to install.
var everywhere = []string{"bash", "cat", "dirname", "mktemp", "rm", "sh"}

// onHost runs the whole demo where nothing is beside these but some of apt-get and curl, and returns what it
// said and what apt-get was asked. The sandbox does nothing but look for the programs that it is to run there.
func onHost(t *testing.T, apt, curl bool) (said, asked string, err error) {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{
		"tools/id":   "#!/bin/sh\necho 0\n", // of root
		"bin/pelago": "#!/bin/sh\n",
		"bin/pelago-sandbox": `#!/bin/sh
[ "$1" != --name ] || shift 2
[ "$1" = run ] || exit 0
while [ "$1" != -- ]; do shift; done
command -v "$2" >/dev/null || { echo "$2: command not found" >>missing; exit 127; }
`,
	}
	if apt {
		files["tools/apt-get"] = `#!/bin/sh
echo "$@" >>asked
case "$1 $*" in install*curl*) echo '#!/bin/sh' >tools/curl; /bin/chmod 755 tools/curl;; esac
`
	}
	if curl {
		files["tools/curl"] = "#!/bin/sh\n"
	}
	for _, name := range []string{"demo.sh", "demo/words.sh"} {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		files["test/"+name] = string(text)
	}
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range everywhere {
		path, err := exec.LookPath(program)
		if err == nil {
			err = os.Symlink(path, filepath.Join(root, "tools", program))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c := exec.CommandContext(t.Context(), filepath.Join(root, "tools/bash"), filepath.Join(root, "test/demo.sh"))
	c.Env = []string{"PATH=" + filepath.Join(root, "tools")}
	out, err := c.CombinedOutput()
	missing, _ := os.ReadFile(filepath.Join(root, "missing"))
	text, _ := os.ReadFile(filepath.Join(root, "asked"))
	return string(out) + string(missing), string(text), err
}

// TestPrograms holds that the demo finds or installs every program that it runs on the machine.
func TestPrograms(t *testing.T) {
	for _, c := range []struct {
		reason    string
		apt, curl bool
		asked     string
	}{
		{"a plain Debian", true, false, "update -qq\ninstall -y -qq --no-install-recommends --no-remove curl\n"},
		{"a machine that has all", true, true, ""},
	} {
		said, asked, err := onHost(t, c.apt, c.curl)
		if err != nil || strings.Contains(said, "command not found") || asked != c.asked {
			t.Errorf("%s: %v; apt-get was asked %q, not %q; the demo said\n%s", c.reason, err, asked, c.asked, said)
		}
	}
	if said, _, err := onHost(t, false, false); err == nil || said != "The demo needs curl; install it.\n" {
		t.Errorf("no Debian: %v; the demo said\n%s", err, said)
	}
}

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// limits are settings of the whole host that several kubelets and containerds
// exceed, as all of them count against one user: the number of file watchers.
// They are raised while there are sandboxes and put back with the last.
var limits = map[string]int{
	"/proc/sys/fs/inotify/max_user_instances": 8192,
	"/proc/sys/fs/inotify/max_user_watches":   524288,
}

func limitsFile() string { return filepath.Join(Base, "limits.json") }

// raiseLimits raises what is too low and stores, first, what it was.
func raiseLimits() error {
	release, err := lockBase()
	if err != nil {
		return err
	}
	defer release()
	before, err := readLimits()
	if err != nil {
		return err
	}
	for path, want := range limits {
		now, err := readLimit(path)
		if err != nil || now >= want {
			continue
		}
		before[path] = now // again, too: what is too low now somebody has set since
		if err := storeLimits(before); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(strconv.Itoa(want)), 0o644); err != nil {
			return fmt.Errorf("raising %s: %w; set it to %d by hand", path, err, want)
		}
	}
	return nil
}

// restoreLimits puts back what raiseLimits changed and nobody has changed since.
// The base must be locked and empty of sandboxes.
func restoreLimits() error {
	before, err := readLimits()
	if err != nil {
		return err
	}
	for path, value := range before {
		if now, err := readLimit(path); err != nil || now != limits[path] {
			continue
		}
		if err := os.WriteFile(path, []byte(strconv.Itoa(value)), 0o644); err != nil {
			return fmt.Errorf("restoring %s: %w", path, err)
		}
	}
	_ = os.Remove(limitsFile() + ".new") // what a crash left
	if err := os.Remove(limitsFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forgetting old limits: %w", err)
	}
	return nil
}

func readLimit(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

func readLimits() (map[string]int, error) {
	before := map[string]int{}
	text, err := os.ReadFile(limitsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return before, nil
	}
	if err == nil && len(text) > 0 { // an empty one is of a power cut while it was written
		err = json.Unmarshal(text, &before)
	}
	if err != nil {
		return nil, fmt.Errorf("reading old limits: %w", err)
	}
	return before, nil
}

func storeLimits(before map[string]int) error {
	text, err := json.Marshal(before)
	if err != nil {
		return fmt.Errorf("storing old limits: %w", err)
	}
	if err := writeLasting(limitsFile(), text, 0o644); err != nil {
		return fmt.Errorf("storing old limits: %w", err)
	}
	return nil
}

// writeLasting writes a file that is there afterwards, and whole, also after a power cut.
func writeLasting(path string, text []byte, mode fs.FileMode) error {
	file, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

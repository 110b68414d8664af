package kubelet

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Bounds of what is asked for.
const (
	maxArguments = 4096
	maxPorts     = 64
)

// target is what a request is about.
type target struct {
	namespace, pod, container, uid string
	// part is the subresource of the pod at the provider.
	part string
}

// check says what is wrong with the names in a path; they come from outside.
func (t target) check() error {
	switch {
	case len(validation.IsDNS1123Label(t.namespace)) > 0:
		return errors.New("the namespace in the path is no name of one")
	case len(validation.IsDNS1123Subdomain(t.pod)) > 0:
		return errors.New("the pod in the path is no name of one")
	case t.part != "portforward" && len(validation.IsDNS1123Label(t.container)) > 0:
		return errors.New("the container in the path is no name of one")
	case len(t.uid) > 64:
		return errors.New("the UID in the path is too long")
	}
	return nil
}

// query is what a pod's subresource is asked where a kubelet is asked asked.
func (t target) query(asked url.Values) (url.Values, error) {
	switch t.part {
	case "log":
		return logQuery(t.container, asked)
	case "exec", "attach":
		return commandQuery(t, asked)
	case "portforward":
		return portQuery(asked)
	}
	return nil, fmt.Errorf("there is no %s", t.part)
}

// logQuery translates what a kubelet is asked for a container's log. What it does not
// know is left out.
func logQuery(container string, asked url.Values) (url.Values, error) {
	q := url.Values{"container": {container}}
	for _, flag := range []string{"follow", "previous", "timestamps"} {
		if isTrue(asked, flag) {
			q.Set(flag, "true")
		}
	}
	lines := asked.Get("tailLines")
	if old := asked.Get("tail"); old != "" { // its name before v1
		lines = old
	}
	if lines == "all" {
		lines = ""
	}
	for _, n := range []struct {
		name, value string
		least       int64
	}{
		{"tailLines", lines, 0}, {"sinceSeconds", asked.Get("sinceSeconds"), 1}, {"limitBytes", asked.Get("limitBytes"), 1},
	} {
		if n.value == "" {
			continue
		}
		number, err := strconv.ParseInt(n.value, 10, 64)
		if err != nil || number < n.least {
			return nil, fmt.Errorf("%s must be a whole number of %d or more", n.name, n.least)
		}
		q.Set(n.name, strconv.FormatInt(number, 10))
	}
	if since := asked.Get("sinceTime"); since != "" {
		at, err := time.Parse(time.RFC3339, since)
		switch {
		case err != nil:
			return nil, errors.New("sinceTime must be a time like 2006-01-02T15:04:05Z")
		case q.Has("sinceSeconds"):
			return nil, errors.New("only one of sinceTime and sinceSeconds can be given")
		}
		q.Set("sinceTime", at.UTC().Format(time.RFC3339Nano))
	}
	switch stream := asked.Get("stream"); stream {
	case "", corev1.LogStreamAll: // the default; where streams are not switched on any that is named is refused
	case corev1.LogStreamStdout, corev1.LogStreamStderr:
		if q.Has("tailLines") {
			return nil, errors.New("tailLines can only be given with stream=All")
		}
		q.Set("stream", stream)
	default:
		return nil, errors.New("stream must be All, Stdout or Stderr")
	}
	return q, nil
}

// commandQuery translates what a kubelet is asked for exec and attach.
func commandQuery(t target, asked url.Values) (url.Values, error) {
	q := url.Values{"container": {t.container}}
	for there, here := range map[string]string{"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"} {
		if asked.Get(here) == "1" {
			q.Set(there, "true")
		}
	}
	if q.Has("tty") {
		q.Del("stderr") // a terminal has one stream
	}
	if !q.Has("stdin") && !q.Has("stdout") && !q.Has("stderr") {
		return nil, errors.New("at least one of input, output and error has to be asked for")
	}
	if t.part == "attach" {
		return q, nil
	}
	command := asked["command"]
	if len(command) == 0 || len(command) > maxArguments {
		return nil, fmt.Errorf("a command of 1 to %d words has to be given", maxArguments)
	}
	q["command"] = command
	return q, nil
}

// portQuery translates the ports of port-forward, which only WebSockets name here. API
// servers join them by commas.
func portQuery(asked url.Values) (url.Values, error) {
	q := url.Values{}
	for _, joined := range asked["port"] {
		for text := range strings.SplitSeq(joined, ",") {
			port, err := strconv.ParseUint(text, 10, 16)
			switch {
			case err != nil || port == 0:
				return nil, errors.New("port must be a number from 1 to 65535")
			case len(q["ports"]) == maxPorts:
				return nil, fmt.Errorf("at most %d ports can be given", maxPorts)
			}
			q.Add("ports", strconv.FormatUint(port, 10))
		}
	}
	return q, nil
}

// isTrue reads a flag as the API server does: anything but false and 0 is true.
func isTrue(asked url.Values, name string) bool {
	values, given := asked[name]
	return given && len(values) > 0 && values[0] != "false" && values[0] != "0"
}

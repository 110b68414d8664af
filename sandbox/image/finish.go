package image

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Where base-passwd keeps the users and groups that every Debian has.
const (
	passwdPackage = "base-passwd"
	passwdMaster  = "usr/share/base-passwd/passwd.master"
	groupMaster   = "usr/share/base-passwd/group.master"
)

// account is a user with a group of the same name and number.
type account struct {
	name string
	id   int
	home string
}

// place is a folder that a package's scripts make or give to somebody.
type place struct {
	path        string
	mode        int64
	user, group string // empty for root
}

// finishing is what the maintainer scripts of a package would do and its
// program needs.
type finishing struct {
	account account           // when its name is not empty
	places  []place           // folders
	links   map[string]string // symbolic link to target
	copies  map[string]string // file to the file it is copied from
}

// finishings by the package whose scripts do it. Numbers of users are fixed, so
// that images do not depend on what else is in them.
var finishings = map[string]finishing{
	"nginx-common": {
		links: map[string]string{
			"/etc/nginx/sites-enabled/default": "/etc/nginx/sites-available/default",
			"/var/log/nginx/access.log":        "/dev/stdout", // for `kubectl logs`
			"/var/log/nginx/error.log":         "/dev/stderr",
		},
		copies: map[string]string{"/var/www/html/index.nginx-debian.html": "/usr/share/nginx/html/index.html"},
	},
	"redis-tools": {
		account: account{"redis", 101, "/var/lib/redis"},
		places: []place{
			{"/var/lib/redis", 0o750, "redis", "redis"},
			{"/var/log/redis", 0o2750, "redis", "adm"},
			{"/etc/redis", 0o2770, "redis", "redis"},
			{"/run/redis", 0o2755, "redis", "redis"},
		},
	},
	"postgresql-common": {
		account: account{"postgres", 102, "/var/lib/postgresql"},
		places: []place{
			{"/var/lib/postgresql", 0o755, "postgres", "postgres"},
			{"/var/log/postgresql", 0o1775, "", "postgres"},
			{"/etc/postgresql", 0o755, "postgres", "postgres"},
			{"/run/postgresql", 0o2775, "postgres", "postgres"},
		},
	},
	"mariadb-server": {
		account: account{"mysql", 103, "/var/lib/mysql"},
		places: []place{
			{"/var/lib/mysql", 0o755, "mysql", "mysql"},
			{"/run/mysqld", 0o755, "mysql", "mysql"},
		},
	},
	"mosquitto": {
		account: account{"mosquitto", 104, "/var/lib/mosquitto"},
		places: []place{
			{"/var/lib/mosquitto", 0o755, "mosquitto", "mosquitto"},
			{"/var/log/mosquitto", 0o755, "mosquitto", "mosquitto"},
			{"/run/mosquitto", 0o755, "mosquitto", "mosquitto"},
		},
	},
	"prometheus": {
		account: account{"prometheus", 105, "/var/lib/prometheus"},
		places:  []place{{"/var/lib/prometheus/metrics2", 0o755, "prometheus", "prometheus"}},
	},
}

// finish makes the users of an image and does what the scripts of its packages
// would do.
func finish(t *tree, packages map[string]bool) error {
	passwd, err := t.read(passwdMaster, maxText)
	if err != nil {
		return err
	}
	group, err := t.read(groupMaster, maxText)
	if err != nil {
		return err
	}
	if t.follow("/bin/bash") == nil {
		passwd = bytes.Replace(passwd, []byte(":/bin/bash\n"), []byte(":/bin/sh\n"), 1) // root's
	}
	for _, name := range slices.Sorted(maps.Keys(finishings)) {
		if a := finishings[name].account; packages[name] && a.name != "" {
			passwd = fmt.Appendf(passwd, "%s:*:%d:%d::%s:/usr/sbin/nologin\n", a.name, a.id, a.id, a.home)
			group = fmt.Appendf(group, "%s:*:%d:\n", a.name, a.id)
		}
	}
	if err := putAll(t, map[string]*entry{"/etc/passwd": text(0o644, passwd), "/etc/group": text(0o644, group)}); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(finishings)) {
		if packages[name] {
			if err := finishings[name].apply(t, passwd, group); err != nil {
				return fmt.Errorf("finishing %s: %w", name, err)
			}
		}
	}
	return bundleCertificates(t)
}

func (f finishing) apply(t *tree, passwd, group []byte) error {
	for _, p := range f.places {
		e := &entry{kind: folder, mode: p.mode, uid: number(passwd, p.user), gid: number(group, p.group)}
		if e.uid < 0 || e.gid < 0 {
			return fmt.Errorf("%s belongs to %s:%s, whom nobody made", p.path, p.user, p.group)
		}
		if err := t.put(p.path, e); err != nil {
			return err
		}
		if made := t.follow(p.path); made != nil {
			made.mode, made.uid, made.gid = e.mode, e.uid, e.gid
		}
	}
	for at, target := range f.links {
		if err := t.put(at, &entry{kind: symlink, mode: 0o777, target: target}); err != nil {
			return err
		}
	}
	for at, from := range f.copies {
		e := t.follow(from)
		if e == nil || e.kind != regular {
			continue // another version of the package has no such file
		}
		if err := t.put(at, e); err != nil {
			return err
		}
	}
	return nil
}

// number finds the ID of a name in the text of /etc/passwd or /etc/group: the
// third field of both. It is 0 for no name and -1 for one that is not there.
func number(text []byte, name string) int {
	if name == "" {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(line, ":")
		if len(fields) > 2 && fields[0] == name {
			id := -1
			if _, err := fmt.Sscanf(fields[2], "%d", &id); err != nil {
				return -1
			}
			return id
		}
	}
	return -1
}

// Certificates of ca-certificates, and the one file that programs look for,
// which its scripts make.
const (
	certificates = "usr/share/ca-certificates/"
	certificate  = "/etc/ssl/certs/ca-certificates.crt"
)

func bundleCertificates(t *tree) error {
	var bundle bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(t.entries)) {
		if !strings.HasPrefix(key, certificates) || !strings.HasSuffix(key, ".crt") {
			continue
		}
		content, err := t.read(key, maxText)
		if err != nil {
			return err
		}
		bundle.Write(bytes.TrimSpace(content))
		bundle.WriteByte('\n')
	}
	if bundle.Len() == 0 {
		return nil
	}
	return putAll(t, map[string]*entry{
		certificate:             text(0o644, bundle.Bytes()),
		"/usr/lib/ssl/cert.pem": {kind: symlink, mode: 0o777, target: certificate},
	})
}

// putAll puts several entries whose order does not matter.
func putAll(t *tree, entries map[string]*entry) error {
	for p, e := range entries {
		if err := t.put(p, e); err != nil {
			return err
		}
	}
	return nil
}

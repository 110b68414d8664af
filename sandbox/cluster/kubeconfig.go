package cluster

import (
	"encoding/base64"
	"fmt"
	"os"
)

// writeKubeconfig stores a kubeconfig, mode 0600, that holds its certificates
// itself.
func writeKubeconfig(path, cluster, server, ca, cert, key string) error {
	var data [3]string
	for i, file := range []string{ca, cert, key} {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("writing kubeconfig: %w", err)
		}
		data[i] = base64.StdEncoding.EncodeToString(text)
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: %[1]s
  cluster: {server: "%[2]s", certificate-authority-data: %[3]s}
users:
- name: %[1]s
  user: {client-certificate-data: %[4]s, client-key-data: %[5]s}
contexts:
- name: %[1]s
  context: {cluster: %[1]s, user: %[1]s}
current-context: %[1]s
`, cluster, server, data[0], data[1], data[2])
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing kubeconfig: %w", err)
	}
	return nil
}

package reflection

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
)

const (
	// maxContent is the most bytes of a Secret that are carried. A tenant has up to a
	// thousand of them in the provider's database.
	maxContent = 64 << 10
	// maxText is the most bytes of a ShadowObject's text: the content in base64, and a bit.
	maxText = 90 << 10
)

// keys are the types of Secrets that are carried, with the one key each has.
var keys = map[corev1.SecretType]string{
	corev1.SecretTypeDockerConfigJson: corev1.DockerConfigJsonKey,
	corev1.SecretTypeDockercfg:        corev1.DockerConfigKey,
}

// content is what is carried of a Secret. It must not be logged.
type content struct {
	Type corev1.SecretType `json:"type"`
	Data map[string][]byte `json:"data"`
}

// String hides the content from whoever prints it.
func (c content) String() string { return "content of type " + string(c.Type) }

// GoString is String.
func (c content) GoString() string { return c.String() }

// encode is the text that carries a Secret. Its errors are for the owner of the pod.
func encode(s *corev1.Secret) (string, error) {
	key, ok := keys[s.Type]
	if !ok {
		return "", fmt.Errorf("its type is %.80q; image-pull secrets have the type %s or %s", s.Type, corev1.SecretTypeDockerConfigJson, corev1.SecretTypeDockercfg)
	}
	c := content{Type: s.Type, Data: map[string][]byte{key: s.Data[key]}}
	if err := c.check(); err != nil {
		return "", err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return "", errors.New("it cannot be written as JSON")
	}
	return string(text), nil
}

// decode reads what a consumer wrote. Its errors repeat nothing of it but the type.
func decode(text string) (*content, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("spec.object has %d bytes, at most %d", len(text), maxText)
	}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	c := &content{}
	if err := d.Decode(c); err != nil {
		return nil, errors.New("spec.object is not the JSON of a Secret with type and data, and nothing else")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("spec.object goes on after its end; write one JSON object")
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("spec.object: %w", err)
	}
	return c, nil
}

// check says what is wrong with content, whoever it is of.
func (c *content) check() error {
	key, ok := keys[c.Type]
	if !ok {
		return fmt.Errorf("type %.80q is not carried; only %s and %s are", c.Type, corev1.SecretTypeDockerConfigJson, corev1.SecretTypeDockercfg)
	}
	value := c.Data[key]
	switch {
	case len(value) == 0 || len(c.Data) != 1:
		return fmt.Errorf("data must have the key %s, and no other", key)
	case len(value) > maxContent:
		return fmt.Errorf("data[%s] has %d bytes, at most %d; leave out registries that are not needed", key, len(value), maxContent)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(value, &fields); err != nil || fields == nil {
		return fmt.Errorf("data[%s] is not a JSON object", key)
	}
	return nil
}

// hash tells two texts apart.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:32]
}

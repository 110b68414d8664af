// Package home is this cluster as its owner describes it: its settings, from the
// ConfigMap pelago-config, its id, made once, and what it tells others of itself.
// Settings follow their ConfigMap while the program runs; a bad change is refused
// and the last good settings stay. It never writes the settings.
package home

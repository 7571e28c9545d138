// Reads objects of Prometheus' operator, JSON after JSON, into its own types: a field that they do not have, or of
// another type, is an error. Its schemas are served by a cluster alone, and come in no package.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
)

func main() {
	if err := check(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(in io.Reader) error {
	documents := json.NewDecoder(in)
	for {
		var document json.RawMessage
		if err := documents.Decode(&document); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var kind struct{ Kind string }
		if err := json.Unmarshal(document, &kind); err != nil {
			return err
		}
		var into any
		switch kind.Kind {
		case "ServiceMonitor":
			into = new(monitoring.ServiceMonitor)
		case "PrometheusRule":
			into = new(monitoring.PrometheusRule)
		default:
			return fmt.Errorf("no kind of the operator's that is known here: %q", kind.Kind)
		}
		strict := json.NewDecoder(bytes.NewReader(document))
		strict.DisallowUnknownFields()
		if err := strict.Decode(into); err != nil {
			return fmt.Errorf("%s: %w", kind.Kind, err)
		}
	}
}

package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
)

type specification struct {
	Constants []struct {
		Name  string `xml:"name,attr"`
		Value int    `xml:"value,attr"`
		Class string `xml:"class,attr"`
	} `xml:"constant"`
	Domains []struct {
		Name string `xml:"name,attr"`
		Type string `xml:"type,attr"`
	} `xml:"domain"`
	Classes []struct {
		Name    string   `xml:"name,attr"`
		Index   int      `xml:"index,attr"`
		Fields  []field  `xml:"field"`
		Methods []method `xml:"method"`
	} `xml:"class"`
}

type method struct {
	Name   string  `xml:"name,attr"`
	Index  int     `xml:"index,attr"`
	Fields []field `xml:"field"`
}

type field struct {
	Name     string `xml:"name,attr"`
	Domain   string `xml:"domain,attr"`
	Type     string `xml:"type,attr"`
	Reserved int    `xml:"reserved,attr"`
}

// importXML turns the published definition into ours.
func importXML(in []byte) ([]byte, error) {
	var s specification
	if err := xml.Unmarshal(in, &s); err != nil {
		return nil, err
	}
	types := map[string]string{}
	for _, d := range s.Domains {
		types[d.Name] = d.Type
	}
	describe := func(f field) (string, error) {
		typ := f.Type
		if typ == "" {
			typ = types[f.Domain]
		}
		if typ == "" {
			return "", fmt.Errorf("field %s: unknown domain %q", f.Name, f.Domain)
		}
		if f.Reserved != 0 {
			return typ + " -", nil
		}
		return typ + " " + f.Name, nil
	}
	var b bytes.Buffer
	b.WriteString("# The facts of AMQP 0-9-1 with RabbitMQ's extensions. Written by: amqpgen import\n\n")
	for _, c := range s.Constants {
		fmt.Fprintln(&b, strings.TrimRight(fmt.Sprintf("constant %s %d %s", c.Name, c.Value, strings.TrimSuffix(c.Class, "-error")), " "))
	}
	for _, c := range s.Classes {
		fmt.Fprintf(&b, "\nclass %s %d\n", c.Name, c.Index)
		for _, f := range c.Fields {
			d, err := describe(f)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&b, "property %s\n", d)
		}
		for _, m := range c.Methods {
			if err := importMethod(&b, m, describe); err != nil {
				return nil, fmt.Errorf("%s.%s: %w", c.Name, m.Name, err)
			}
		}
	}
	return b.Bytes(), nil
}

func importMethod(b *bytes.Buffer, m method, describe func(field) (string, error)) error {
	fmt.Fprintf(b, "method %s %d", m.Name, m.Index)
	for _, f := range m.Fields {
		d, err := describe(f)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, " (%s)", d)
	}
	b.WriteByte('\n')
	return nil
}

package admin

import (
	"encoding"
	"reflect"
	"strings"

	"github.com/tanist/tanist/internal/core/ident"
)

// object is a JSON object of the document.
type object = map[string]any

// openapi makes the OpenAPI 3.1 document of the routes.
func openapi(version string) object {
	schemas := object{}
	failure := schemaOf(reflect.TypeFor[Failure](), schemas)
	paths := object{}
	for _, r := range routes {
		path, ok := paths[r.path].(object)
		if !ok {
			path = object{}
			paths[r.path] = path
		}
		path[strings.ToLower(r.method)] = operation(r, schemas, failure)
	}
	for path, doc := range map[string]string{
		"/metrics": "Counters in Prometheus' text format; needs no login",
		"/livez":   "200 while the process runs; needs no login",
		"/readyz":  "200 when the node serves every partition it owns, else 503; needs no login",
	} {
		paths[path] = object{"get": object{
			"summary": doc, "security": []any{}, "responses": object{"200": object{"description": "as said", "content": object{"text/plain": object{}}}},
		}}
	}
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Tanist admin API", "version": version, "license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		"security":   []any{object{"basic": []any{}}},
		"paths":      paths,
		"components": object{"schemas": schemas, "securitySchemes": object{"basic": object{"type": "http", "scheme": "basic"}}},
	}
}

func operation(r route, schemas object, failure object) object {
	var params []any
	for _, part := range strings.Split(r.path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			params = append(params, object{
				"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true, "schema": object{"type": "string"},
				"description": "percent-encoded: the virtual host / is %2F",
			})
		}
	}
	for _, q := range r.query {
		params = append(params, object{"name": q.name, "in": "query", "schema": object{"type": "string"}, "description": q.doc})
	}
	role := Administrator
	if r.reads() {
		role = Monitoring + " or " + Administrator
	}
	op := object{"summary": r.summary, "description": "Needs the role " + role + ".", "responses": responses(r, schemas, failure)}
	if params != nil {
		op["parameters"] = params
	}
	if r.request != nil {
		op["requestBody"] = object{"required": true, "content": jsonOf(schemaOf(reflect.TypeOf(r.request), schemas))}
	}
	return op
}

func responses(r route, schemas object, failure object) object {
	out := object{"default": object{"description": "refused or failed", "content": jsonOf(failure)}}
	if r.response == nil {
		out["204"] = object{"description": "done"}
	} else {
		out["200"] = object{"description": "the answer", "content": jsonOf(schemaOf(reflect.TypeOf(r.response), schemas))}
	}
	return out
}

func jsonOf(schema object) object { return object{"application/json": object{"schema": schema}} }

// schemaOf gives the schema of a type as encoding/json writes it. Structs are put among the named schemas.
func schemaOf(t reflect.Type, schemas object) object {
	if t.Kind() != reflect.Pointer && t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem(), schemas)
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64, reflect.Int32:
		return object{"type": "integer"}
	case reflect.Uint64, reflect.Uint32:
		return object{"type": "integer", "minimum": 0}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.String:
		if t == reflect.TypeFor[State]() {
			return object{"type": "string", "enum": States}
		}
		return object{"type": "string"}
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem(), schemas)}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": schemaOf(t.Elem(), schemas)}
	case reflect.Struct:
		return structSchema(t, schemas)
	}
	panic("admin: no JSON schema for " + t.String()) // a type of ours in the table above; the tests build the document
}

// schemaName is what a struct is called in the document. Names are of one room here, as those of Go's packages are not.
func schemaName(t reflect.Type) string {
	if t == reflect.TypeFor[ident.Partition]() {
		return "PartitionID" // Partition is one with its copies
	}
	return t.Name()
}

func structSchema(t reflect.Type, schemas object) object {
	name := schemaName(t)
	ref := object{"$ref": "#/components/schemas/" + name}
	if _, known := schemas[name]; known {
		return ref
	}
	properties, required := object{}, []string{}
	schemas[name] = object{"type": "object", "properties": properties, "additionalProperties": false}
	fieldsOf(t, schemas, properties, &required)
	if len(required) > 0 {
		schemas[name].(object)["required"] = required
	}
	return ref
}

// fieldsOf adds a struct's fields; those of an embedded one are its own, as encoding/json has it.
func fieldsOf(t reflect.Type, schemas, properties object, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		if f.Anonymous && name == "" {
			fieldsOf(f.Type, schemas, properties, required)
			continue
		}
		properties[name] = schemaOf(f.Type, schemas)
		if !strings.Contains(options, "omitempty") {
			*required = append(*required, name)
		}
	}
}

// Package wire holds the protobuf messages and services of the mesh port, generated from mesh.proto. Nothing is decided here.
package wire

//go:generate sh -c "cd ../../../../tools && go run ./protogen ../internal/engine/mesh/wire mesh.proto"

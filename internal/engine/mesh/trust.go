package mesh

import (
	"github.com/tanist/tanist/internal/engine/mesh/wire"
)

// Registrar decides about certificates.
type Registrar interface{}

type trustService struct {
	wire.UnimplementedTrustServer
	m *GRPC
}

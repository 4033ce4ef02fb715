package wire

import "encoding/binary"

// Flags of content properties, in the order in which the properties follow.
const (
	HasContentType     = 1 << 15
	HasContentEncoding = 1 << 14
	HasHeaders         = 1 << 13
	HasDeliveryMode    = 1 << 12
	HasPriority        = 1 << 11
	HasCorrelationID   = 1 << 10
	HasReplyTo         = 1 << 9
	HasExpiration      = 1 << 8
	HasMessageID       = 1 << 7
	HasTimestamp       = 1 << 6
	HasType            = 1 << 5
	HasUserID          = 1 << 4
	HasAppID           = 1 << 3
	HasClusterID       = 1 << 2
	flagsReserved      = 1<<1 | 1<<0
)

// Properties are a message's properties, decoded in full. Flags says which of them are there.
type Properties struct {
	Flags           uint16
	ContentType     string
	ContentEncoding string
	Headers         Table
	DeliveryMode    uint8 // 2 is persistent
	Priority        uint8
	CorrelationID   string
	ReplyTo         string
	Expiration      string // milliseconds, in digits
	MessageID       string
	Timestamp       uint64 // seconds since 1970
	Type            string
	UserID          string
	AppID           string
	ClusterID       string
}

// DecodeProperties reads properties, flags first. The error is an *Error with code 502.
func DecodeProperties(p []byte) (Properties, error) {
	r := reader{p: p}
	x := Properties{Flags: r.short()}
	if x.Flags&flagsReserved != 0 {
		return x, errorf(SyntaxError, "unknown content properties")
	}
	str := func(flag uint16, s *string) {
		if x.Flags&flag != 0 {
			*s = r.shortstr()
		}
	}
	str(HasContentType, &x.ContentType)
	str(HasContentEncoding, &x.ContentEncoding)
	if x.Flags&HasHeaders != 0 {
		x.Headers = r.table()
	}
	if x.Flags&HasDeliveryMode != 0 {
		x.DeliveryMode = r.octet()
	}
	if x.Flags&HasPriority != 0 {
		x.Priority = r.octet()
	}
	str(HasCorrelationID, &x.CorrelationID)
	str(HasReplyTo, &x.ReplyTo)
	str(HasExpiration, &x.Expiration)
	str(HasMessageID, &x.MessageID)
	if x.Flags&HasTimestamp != 0 {
		x.Timestamp = r.longlong()
	}
	str(HasType, &x.Type)
	str(HasUserID, &x.UserID)
	str(HasAppID, &x.AppID)
	str(HasClusterID, &x.ClusterID)
	return x, r.end()
}

// Append appends the properties, flags first.
func (x *Properties) Append(dst []byte) []byte {
	dst = appendShort(dst, x.Flags)
	str := func(flag uint16, s string) {
		if x.Flags&flag != 0 {
			dst = appendShortstr(dst, s)
		}
	}
	str(HasContentType, x.ContentType)
	str(HasContentEncoding, x.ContentEncoding)
	if x.Flags&HasHeaders != 0 {
		dst = x.Headers.Append(dst)
	}
	if x.Flags&HasDeliveryMode != 0 {
		dst = append(dst, x.DeliveryMode)
	}
	if x.Flags&HasPriority != 0 {
		dst = append(dst, x.Priority)
	}
	str(HasCorrelationID, x.CorrelationID)
	str(HasReplyTo, x.ReplyTo)
	str(HasExpiration, x.Expiration)
	str(HasMessageID, x.MessageID)
	if x.Flags&HasTimestamp != 0 {
		dst = appendLonglong(dst, x.Timestamp)
	}
	str(HasType, x.Type)
	str(HasUserID, x.UserID)
	str(HasAppID, x.AppID)
	str(HasClusterID, x.ClusterID)
	return dst
}

// PropertyView is what a broker looks at in properties, without allocating. Its parts refer to the input.
type PropertyView struct {
	Flags        uint16
	DeliveryMode uint8
	Priority     uint8
	Headers      []byte // without length
	ReplyTo      []byte
	Expiration   []byte
	UserID       []byte
	headersAt    int // where the headers, with their length, begin or would begin
}

// ViewProperties checks properties, headers included, and reads what PropertyView holds. The error is an *Error with code 502.
func ViewProperties(p []byte) (PropertyView, error) {
	v, err := view(p)
	if err == nil && len(v.Headers) > 0 {
		err = CheckTable(v.Headers)
	}
	return v, err
}

func view(p []byte) (PropertyView, error) {
	r := reader{p: p}
	v := PropertyView{Flags: r.short()}
	if v.Flags&flagsReserved != 0 {
		return v, errorf(SyntaxError, "unknown content properties")
	}
	if v.Flags&HasContentType != 0 {
		r.shortBytes()
	}
	if v.Flags&HasContentEncoding != 0 {
		r.shortBytes()
	}
	v.headersAt = len(p) - len(r.p)
	if v.Flags&HasHeaders != 0 {
		v.Headers = r.longBytes()
	}
	if v.Flags&HasDeliveryMode != 0 {
		v.DeliveryMode = r.octet()
	}
	if v.Flags&HasPriority != 0 {
		v.Priority = r.octet()
	}
	if v.Flags&HasCorrelationID != 0 {
		r.shortBytes()
	}
	if v.Flags&HasReplyTo != 0 {
		v.ReplyTo = r.shortBytes()
	}
	if v.Flags&HasExpiration != 0 {
		v.Expiration = r.shortBytes()
	}
	if v.Flags&HasMessageID != 0 {
		r.shortBytes()
	}
	if v.Flags&HasTimestamp != 0 {
		r.longlong()
	}
	if v.Flags&HasType != 0 {
		r.shortBytes()
	}
	if v.Flags&HasUserID != 0 {
		v.UserID = r.shortBytes()
	}
	if v.Flags&HasAppID != 0 {
		r.shortBytes()
	}
	if v.Flags&HasClusterID != 0 {
		r.shortBytes()
	}
	return v, r.end()
}

// AppendWithInt appends properties that had been checked, with one more header: an integer of 64 bits. A header of that name that the
// message has already is replaced. Properties that cannot be read are appended as they are.
func AppendWithInt(dst, properties []byte, name string, n int64) []byte {
	v, err := view(properties)
	if err != nil {
		return append(dst, properties...)
	}
	dst = appendShort(dst, v.Flags|HasHeaders)
	dst = append(dst, properties[2:v.headersAt]...)
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for f := Walk(v.Headers); ; {
		x, ok := f.Next()
		if !ok {
			break
		}
		if string(x.Name) != name {
			dst = append(dst, x.All...)
		}
	}
	dst = append(appendShortstr(dst, name), TypeInt64)
	dst = appendLonglong(dst, uint64(n))
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	rest := v.headersAt
	if v.Flags&HasHeaders != 0 {
		rest += 4 + len(v.Headers)
	}
	return append(dst, properties[rest:]...)
}

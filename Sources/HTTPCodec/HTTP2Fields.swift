// The fields of HTTP/2 responses. RFC 9113 section 8.

extension HeaderFields {
    /// Calls `add` for each field of a response or of its trailers, as HTTP/2 sends it.
    ///
    /// Names are in lower case, hop-by-hop fields are left out, and values are Unicode. Sections 8.2.1 and 8.2.2.
    package func forEachInHTTP2(_ add: (_ name: String, _ value: String) -> Void) {
        for field in fields {
            let hasCapitals = field.name.utf8.contains { (0x41...0x5A).contains($0) }
            let name = hasCapitals ? field.name.lowercased() : field.name
            if !Self.isForOneHopInHTTP2(name) { add(name, FieldText.unicode(field.value)) }
        }
    }

    /// Whether the field is a hop-by-hop field, which HTTP/2 forbids. Section 8.2.2.
    ///
    /// - Parameter name: in lower case.
    static func isForOneHopInHTTP2(_ name: String) -> Bool {
        switch name.utf8.count {
        case 7: name == "upgrade"
        case 10: name == "connection" || name == "keep-alive"
        case 16: name == "proxy-connection"
        case 17: name == "transfer-encoding"
        default: false
        }
    }
}

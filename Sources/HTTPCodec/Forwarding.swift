// What a gateway changes in the fields that it passes on. RFC 9110 section 7.6, RFC 7239.

/// Fields on their way through the gateway.
///
/// Where the policy leaves a message alone, everything else of it stays as it came: method, target, status, reason phrase,
/// order and case of fields, their values byte by byte, the body. What does not:
/// - fields for one hop only, and those that `Connection` names, end here; `Transfer-Encoding` stays in its place where
///   the next hop is chunked as well,
/// - `Forwarded` and `X-Forwarded-For`, `-Proto` and `-Host` are added at the end; what a stranger says in these, and in
///   other fields by which proxies name a client, is taken out,
/// - white space around a value, the borders of chunks and their extensions, and trailer fields that would frame, route or
///   authenticate a message,
/// - the version is HTTP/1.1, to the backend always, and a target in absolute form becomes one in origin form,
/// - `Upgrade` goes through for WebSocket only.
///
/// `Host` is the client's. `Via` is not added: the gateway's presence is nobody's business who does not know of it.
package struct Forwarding: Sendable {
    /// The client's address without its port.
    private let address: String
    private let node: String
    private let scheme: String
    /// Whether the peer may say for whom it speaks, being a proxy of the operator's.
    private let trustsPeer: Bool
    /// The element for the host of the last request, which is nearly always that of the next one.
    private var last: (host: String?, element: String)?

    /// - Parameters:
    ///   - address: the client's address without its port; nothing where it has none.
    ///   - isSecure: whether the client came by TLS.
    ///   - trustsPeer: whether what the client says about its own clients is believed.
    package init(address: String?, isSecure: Bool, trustsPeer: Bool) {
        self.address = address ?? "unknown"
        // RFC 7239 section 6: an IPv6 address is bracketed, and so quoted.
        node = self.address.utf8.contains(UInt8(ascii: ":")) ? "\"[\(self.address)]\"" : self.address
        scheme = isSecure ? "https" : "http"
        self.trustsPeer = trustsPeer
    }

    /// The head for the backend.
    ///
    /// - Parameter isChunked: whether the body goes on chunked; else `Transfer-Encoding` ends here.
    package mutating func request(_ head: RequestHead, isChunked: Bool) -> RequestHead {
        let upgrades = Self.upgradesToWebSocket(head)
        var fields = Self.endToEnd(head.headers, isChunked: isChunked) { name in
            // Behind a proxy of the operator's these fields are the proxy's own, but not under another spelling.
            guard Self.isAboutTheClient(name) else { return false }
            return !trustsPeer || name.utf8.contains(UInt8(ascii: "_"))
        }
        if upgrades {
            fields.add("Connection", "Upgrade")
            fields.add("Upgrade", "websocket")
        }
        let host = head.headers.first("host")
        if last == nil || last?.host != host { last = (host, element(host)) }
        let element = last?.element ?? ""
        guard trustsPeer else {
            fields.add("Forwarded", element)
            fields.add("X-Forwarded-For", address)
            fields.add("X-Forwarded-Proto", scheme)
            if let host { fields.add("X-Forwarded-Host", host) }
            return RequestHead(head.method, head.target, headers: fields)
        }
        fields.append(element, to: "Forwarded")
        fields.append(address, to: "X-Forwarded-For")
        if fields.first("x-forwarded-proto") == nil { fields.add("X-Forwarded-Proto", scheme) }
        if let host, fields.first("x-forwarded-host") == nil { fields.add("X-Forwarded-Host", host) }
        return RequestHead(head.method, head.target, headers: fields)
    }

    /// The head for the client.
    ///
    /// - Parameters:
    ///   - isChunked: whether the body goes on chunked.
    ///   - upgrades: whether this is the 101 that begins a WebSocket.
    package static func response(_ head: ResponseHead, isChunked: Bool, upgrades: Bool = false) -> ResponseHead {
        var fields = endToEnd(head.headers, isChunked: isChunked) { _ in false }
        if isChunked, fields.first("transfer-encoding") == nil { fields.add("Transfer-Encoding", "chunked") }
        if upgrades {
            fields.add("Connection", "Upgrade")
            fields.add("Upgrade", "websocket")
        }
        return ResponseHead(head.status, reason: head.reason, headers: fields)
    }

    /// Whether a request asks for a WebSocket: the only protocol that a connection may change to, because bytes of any
    /// other, HTTP/2 first of all, would pass every rule by. RFC 6455 section 4.1.
    package static func upgradesToWebSocket(_ head: RequestHead) -> Bool {
        guard head.method == "GET", let upgrade = head.headers.first("upgrade"),
            HeaderFields.areAlike(upgrade, "websocket")
        else { return false }
        return head.headers.tokens("connection").contains("upgrade")
    }

    private func element(_ host: String?) -> String {
        guard let host else { return "for=\(node);proto=\(scheme)" }
        let isToken = !host.isEmpty && host.utf8.allSatisfy { $0 != 0x3A && $0 != 0x5B && $0 != 0x5D && $0 < 0x80 }
        return "for=\(node);proto=\(scheme);host=\(isToken ? host : "\"\(host)\"")"
    }

    // MARK: Hops

    /// By what proxies name a client besides fields that begin with `X-Forwarded-`. A client must not say it about itself.
    private static let aboutTheClient = [
        "forwarded", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip", "fastly-client-ip",
        "x-cluster-client-ip",
        "x-remote-user", "x-remote-addr", "x-original-forwarded-for",
    ]

    private static func isAboutTheClient(_ name: String) -> Bool {
        if HeaderFields.areOneBehindCGI(String(name.prefix(12)), "x-forwarded-") { return true }
        return aboutTheClient.contains { HeaderFields.areOneBehindCGI(name, $0) }
    }

    private static func endToEnd(
        _ headers: HeaderFields, isChunked: Bool, besides isDropped: (String) -> Bool
    ) -> HeaderFields {
        let named = headers.tokens("connection")
        var result: [HeaderFields.Field] = []
        result.reserveCapacity(headers.fields.count + 4)
        for field in headers.fields {
            if isForOneHop(field.name) {
                if !isChunked || !HeaderFields.areAlike(field.name, "transfer-encoding") { continue }
            }
            if !named.isEmpty, named.contains(where: { HeaderFields.areAlike($0, field.name) }),
                !isNeeded(field.name), !HeaderFields.areAlike(field.name, "transfer-encoding")
            {
                continue
            }
            if isDropped(field.name) { continue }
            result.append(field)
        }
        return HeaderFields(result)
    }

    private static func isForOneHop(_ name: String) -> Bool {
        switch name.utf8.count {
        case 2: HeaderFields.areAlike(name, "te")
        case 7: HeaderFields.areAlike(name, "upgrade")
        case 10: HeaderFields.areAlike(name, "connection") || HeaderFields.areAlike(name, "keep-alive")
        case 16: HeaderFields.areAlike(name, "proxy-connection")
        case 17: HeaderFields.areAlike(name, "transfer-encoding")
        default: false
        }
    }

    /// Fields that the meaning of a message hangs on: naming them in `Connection` does not take them away.
    private static func isNeeded(_ name: String) -> Bool {
        ["host", "content-length", "content-type", "content-encoding", "authorization", "cookie"]
            .contains { HeaderFields.areAlike(name, $0) }
    }
}

extension HeaderFields {
    /// Puts a member at the end of a list field, in its last line.
    fileprivate mutating func append(_ member: String, to name: String) {
        guard let index = fields.lastIndex(where: { Self.areAlike($0.name, name) }) else { return add(name, member) }
        let before = fields[index].value
        fields[index].value = before.isEmpty ? member : "\(before), \(member)"
    }
}

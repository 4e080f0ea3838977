// The changes that a gateway makes in forwarded fields. RFC 9110 section 7.6, RFC 7239.

/// Changes the header fields that the gateway forwards.
///
/// A message that the policy does not touch is forwarded unchanged: method, target, status, reason phrase, body, and
/// order, case and values of the fields. Exceptions:
/// - Hop-by-hop fields and the fields that `Connection` names are removed. `Transfer-Encoding` stays in its position if
///   the next hop is chunked too.
/// - `Forwarded` and `X-Forwarded-For`, `-Proto` and `-Host` are added at the end. An untrusted client's values of
///   these fields, and of other fields by which proxies name a client, are removed.
/// - White space around a value, chunk boundaries and extensions, and trailer fields that would frame, route or
///   authenticate a message or name a client are not preserved.
/// - The version is HTTP/1.1, toward the backend always. A target in absolute form becomes one in origin form.
/// - `Upgrade` is forwarded for WebSocket only.
///
/// `Host` is the client's. No `Via` is added: it would disclose the gateway.
package struct Forwarding: Sendable {
    /// The client's address without its port.
    private let address: String
    private let node: String
    private let scheme: String
    /// Whether the peer is a proxy of the operator, whose fields about the client are trusted.
    private let trustsPeer: Bool
    /// The `Forwarded` element of the last request. Requests of one connection nearly always have the same host.
    private var last: (host: String?, element: String)?

    /// - Parameters:
    ///   - address: the client's address without its port; nil if it has none.
    ///   - isSecure: whether the client's connection uses TLS.
    ///   - trustsPeer: whether the peer is a trusted proxy, whose fields about its clients are kept.
    package init(address: String?, isSecure: Bool, trustsPeer: Bool) {
        self.address = address ?? "unknown"
        // RFC 7239 section 6: an IPv6 address is in brackets and quoted.
        node = self.address.utf8.contains(UInt8(ascii: ":")) ? "\"[\(self.address)]\"" : self.address
        scheme = isSecure ? "https" : "http"
        self.trustsPeer = trustsPeer
    }

    /// Returns the head for the backend.
    ///
    /// - Parameter isChunked: whether the forwarded body is chunked; if not, `Transfer-Encoding` is removed.
    package mutating func request(_ head: RequestHead, isChunked: Bool) -> RequestHead {
        let upgrades = Self.upgradesToWebSocket(head)
        var fields = Self.endToEnd(head.headers, isChunked: isChunked) { name in
            // A trusted proxy sets these fields itself. It may not know their spelling with underscores.
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

    /// Returns the head for the client.
    ///
    /// - Parameters:
    ///   - isChunked: whether the forwarded body is chunked.
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

    /// Whether a request asks for a WebSocket. RFC 6455 section 4.1.
    ///
    /// No other upgrade is allowed: the gateway could not apply its rules to another protocol, for instance HTTP/2.
    package static func upgradesToWebSocket(_ head: RequestHead) -> Bool {
        guard head.method == "GET", let upgrade = head.headers.first("upgrade"),
            HeaderFields.areAlike(upgrade, "websocket")
        else { return false }
        return head.headers.tokens("connection").contains("upgrade")
    }

    private func element(_ host: String?) -> String {
        guard let host else { return "for=\(node);proto=\(scheme)" }
        // What is no token is quoted: a semicolon or a comma of the client would begin another pair or element. A `Host`
        // that was accepted has no quotes and backslashes.
        let isToken = !host.isEmpty && host.utf8.allSatisfy(HeadParser.isTokenByte)
        return "for=\(node);proto=\(scheme);host=\(isToken ? host : "\"\(host)\"")"
    }

    // MARK: Hops

    /// Fields by which proxies name a client, besides `X-Forwarded-*`. A client must not set them itself.
    private static let aboutTheClient = [
        "forwarded", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip", "fastly-client-ip",
        "x-cluster-client-ip",
        "x-remote-user", "x-remote-addr", "x-original-forwarded-for",
    ]

    /// Whether proxies name a client by this field.
    static func isAboutTheClient(_ name: String) -> Bool {
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

    /// Fields that are kept even if `Connection` names them: without them a message has another meaning.
    private static func isNeeded(_ name: String) -> Bool {
        ["host", "content-length", "content-type", "content-encoding", "authorization", "cookie"]
            .contains { HeaderFields.areAlike(name, $0) }
    }
}

extension HeaderFields {
    /// Appends a member to the last line of a list field, or adds the field.
    fileprivate mutating func append(_ member: String, to name: String) {
        guard let index = fields.lastIndex(where: { Self.areAlike($0.name, name) }) else { return add(name, member) }
        let before = fields[index].value
        fields[index].value = before.isEmpty ? member : "\(before), \(member)"
    }
}

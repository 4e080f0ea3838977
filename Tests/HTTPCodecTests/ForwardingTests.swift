import HTTPCodec
import NIOCore
import Testing

@Suite struct ForwardingTests {
    private func forwarded(
        _ headers: HeaderFields, address: String? = "192.0.2.7", isSecure: Bool = false, trustsPeer: Bool = false,
        isChunked: Bool = false
    ) -> HeaderFields {
        var forwarding = Forwarding(address: address, isSecure: isSecure, trustsPeer: trustsPeer)
        return forwarding.request(RequestHead("GET", "/", headers: headers), isChunked: isChunked).headers
    }

    @Test func whatAStrangerClaimsIsReplaced() {
        let headers = forwarded([
            "hOST": "chat.example:8008", "Forwarded": "for=1.2.3.4", "X-Forwarded-For": "1.2.3.4",
            "X_Forwarded_For": "1.2.3.4", "x-forwarded-proto": "https", "Cookie": "a=b",
        ])
        #expect(
            headers == [
                "hOST": "chat.example:8008", "Cookie": "a=b",
                "Forwarded": "for=192.0.2.7;proto=http;host=\"chat.example:8008\"", "X-Forwarded-For": "192.0.2.7",
                "X-Forwarded-Proto": "http", "X-Forwarded-Host": "chat.example:8008",
            ])
    }

    /// A `Host` may have characters that divide the pairs and elements of `Forwarded`. RFC 7239 section 4.
    @Test(arguments: ["chat;for=1.2.3.4", "chat,for=1.2.3.4", "chat=x", "(chat)"])
    func aHostIsOneValue(_ host: String) {
        let headers = forwarded(["Host": host])
        #expect(headers["Forwarded"] == ["for=192.0.2.7;proto=http;host=\"\(host)\""])
    }

    /// Backends go by fields of many names, depending on the proxy that they are used to.
    @Test(arguments: [
        "X-Real-IP", "x_real_ip", "True-Client-IP", "X-Client-IP", "CF-Connecting-IP", "X-Forwarded-Port",
        "X-Forwarded-Prefix",
        "X-Forwarded-Scheme", "X-Forwarded-Ssl", "X-Forwarded-User", "X_Forwarded_User", "X-Remote-User",
    ]) func noOtherNameOfTheClientGoesBy(_ name: String) {
        #expect(forwarded(["Host": "x", name: "1.2.3.4", "X-Realm": "a"])[name] == [])
        #expect(forwarded(["Host": "x", name: "1.2.3.4", "X-Realm": "a"])["X-Realm"] == ["a"])
        let trusted = forwarded(["Host": "x", name: "1.2.3.4"], trustsPeer: true)
        #expect(trusted[name] == (name.contains("_") ? [] : ["1.2.3.4"]))
    }

    @Test func headersOfATrustedPeerAreContinued() {
        let headers = forwarded(
            ["Host": "chat", "Forwarded": "for=1.2.3.4", "X-Forwarded-For": "1.2.3.4", "X-Forwarded-Proto": "https"],
            address: "2001:db8::7", trustsPeer: true)
        #expect(
            headers == [
                "Host": "chat", "Forwarded": "for=1.2.3.4, for=\"[2001:db8::7]\";proto=http;host=chat",
                "X-Forwarded-For": "1.2.3.4, 2001:db8::7", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "chat",
            ])
    }

    @Test func fieldsForOneHopEndHere() {
        let headers = forwarded([
            "Host": "x", "Connection": "close, X-Hop, Content-Length", "X-Hop": "1", "Keep-Alive": "timeout=5",
            "Proxy-Connection": "x", "TE": "trailers", "Transfer-Encoding": "chunked", "Upgrade": "h2c",
            "Content-Length": "5", "X-End": "2",
        ])
        #expect(headers.fields.prefix(3).map(\.name) == ["Host", "Content-Length", "X-End"])
        #expect(headers.fields.count == 7)
        let chunked = forwarded(["Host": "x", "Transfer-Encoding": "chunked", "A": "b"], isChunked: true)
        #expect(chunked.fields.prefix(3).map(\.name) == ["Host", "Transfer-Encoding", "A"])
    }

    @Test func onlyWebSocketIsUpgradedTo() {
        let web = forwarded(["Host": "x", "Connection": "keep-alive, Upgrade", "Upgrade": "WebSocket"])
        #expect(web.first("upgrade") == "websocket")
        #expect(web["connection"] == ["Upgrade"])
        #expect(
            forwarded(["Host": "x", "Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c"]).first("upgrade") == nil)
        #expect(forwarded(["Host": "x", "Upgrade": "websocket"]).first("upgrade") == nil)
    }

    @Test func answers() {
        let head = ResponseHead(
            200, reason: "Yes",
            headers: ["Server": "x", "Connection": "X-A", "X-A": "1", "Keep-Alive": "3", "Via": "1.1 y"])
        #expect(Forwarding.response(head, isChunked: false).headers == ["Server": "x", "Via": "1.1 y"])
        #expect(Forwarding.response(head, isChunked: true).headers.first("transfer-encoding") == "chunked")
    }
}

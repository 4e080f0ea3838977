import NIOCore
import Testing

@testable import NIOSupport

/// What is announced of a client's TLS, and what is believed of it.
@Suite struct ClientSecurityTests {
    private static let digits = String(repeating: "0f", count: 32)

    private func addresses(_ source: String, port: Int) throws -> ProxiedAddresses {
        let source = try SocketAddress(ipAddress: source, port: port)
        return ProxiedAddresses(source: source, destination: source)
    }

    @Test func linesOfWEBIRC() throws {
        func line(_ addresses: ProxiedAddresses?, _ options: [Substring]) -> String {
            String(
                buffer: WebIRC.line(
                    password: "sesame", addresses, localPort: 6697, security: ClientSecurity(options: options)))
        }
        let one = try addresses("192.0.2.7", port: 40_000)
        #expect(line(one, []) == "WEBIRC sesame pawl 192.0.2.7 192.0.2.7 :remote-port=40000 local-port=6697\r\n")
        #expect(
            line(one, ["secure"])
                == "WEBIRC sesame pawl 192.0.2.7 192.0.2.7 :secure remote-port=40000 local-port=6697\r\n")
        #expect(
            line(try addresses("::1", port: 0), ["certfp-sha-256=\(Self.digits)", "secure"])
                == "WEBIRC sesame pawl 0::1 0::1 :secure certfp-sha-256=\(Self.digits) local-port=6697\r\n")
        // A client without an address has options as well: a server takes one without options for one by TLS.
        #expect(line(nil, []) == "WEBIRC sesame pawl 127.0.0.1 127.0.0.1 :local-port=6697\r\n")
    }

    @Test func optionsOfWEBIRC() {
        #expect(ClientSecurity(options: ["local-port=6697"]) == nil)
        #expect(ClientSecurity(options: ["certfp-sha-256=\(Self.digits)"]) == nil)
        #expect(ClientSecurity(options: ["Secure"]) == nil)
        #expect(ClientSecurity(options: ["x", "secure"])?.options == ["secure"])
        let upper = Self.digits.uppercased()
        #expect(
            ClientSecurity(options: ["secure", "certfp-sha-256=\(upper)"])?.options
                == ["secure", "certfp-sha-256=\(Self.digits)"])
        let (letters, wide) = (String(repeating: "x", count: 64), String(Self.digits.dropLast()) + "\u{FF11}")
        for wrong in ["", "00", Self.digits + "0", letters, wide] {
            #expect(ClientSecurity(options: ["secure", "certfp-sha-256=\(wrong)"])?.fingerprint == nil, "\(wrong)")
        }
    }

    /// What a gateway says of its client's TLS counts if it comes by TLS itself, or from this machine.
    @Test(arguments: [("127.0.0.1", false, true), ("192.0.2.1", true, true), ("192.0.2.1", false, false)])
    func aGatewayIsBelievedIfNobodyCouldAlterIt(_ peer: String, _ usesTLS: Bool, _ isBelieved: Bool) throws {
        var options = DownstreamOptions(listeners: [], connectionLimit: 1)
        options.webIRCPassword = "sesame"
        options.trusts = { _ in true }
        func reader(_ line: String) throws -> ProxiedAddressReader {
            let peer = try SocketAddress(ipAddress: peer, port: 40_000)
            var reader = ProxiedAddressReader(options: options, peer: peer, usesTLS: usesTLS)
            var bytes = ByteBuffer(string: line + "\r\n")
            _ = reader.take(&bytes)
            #expect(reader.isDone)
            return reader
        }
        let start = "WEBIRC sesame web host.example 192.0.2.7"
        let believed = try reader("\(start) :secure certfp-sha-256=\(Self.digits) local-port=1")
        #expect(believed.isGateway && believed.security?.fingerprint == (isBelieved ? Self.digits : nil))
        #expect((try reader("\(start) :secure").security != nil) == isBelieved)
        #expect((try reader("\(start) secure").security != nil) == isBelieved)
        for line in [start, "\(start) :local-port=1", "\(start) :insecure"] {
            let reader = try reader(line)
            #expect(reader.isGateway && reader.security == nil)
        }
        let own = try reader("NICK alice")
        #expect(!own.isGateway && own.security == nil)
    }
}

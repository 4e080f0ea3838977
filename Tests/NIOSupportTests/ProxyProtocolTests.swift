import NIOCore
import NIOSupport
import TestKit
import Testing

@Suite struct ProxyProtocolTests {
    static let addresses = [("192.0.2.7", "198.51.100.1"), ("2001:db8::7", "2001:db8::1")]

    private func pair(_ source: String, _ destination: String) throws -> ProxiedAddresses {
        ProxiedAddresses(
            source: try SocketAddress(ipAddress: source, port: 40_000),
            destination: try SocketAddress(ipAddress: destination, port: 6667))
    }

    @Test(arguments: ProxyProtocol.Version.allCases, addresses)
    func roundTrip(_ version: ProxyProtocol.Version, _ ends: (String, String)) throws {
        let expected = try pair(ends.0, ends.1)
        let header = ProxyProtocol.header(version, expected)
        // Every cut needs more bytes and moves nothing; behind the whole header the client's bytes stay.
        for length in 0..<header.readableBytes {
            var cut = header.getSlice(at: header.readerIndex, length: length) ?? ByteBuffer()
            let outcome = try ProxyProtocol.read(&cut)
            #expect(outcome == .incomplete)
            #expect(cut.readableBytes == length)
        }
        var whole = header
        whole.writeString("NICK alice\r\n")
        let outcome = try ProxyProtocol.read(&whole)
        #expect(outcome == .header(expected, isSecure: false))
        #expect(String(buffer: whole) == "NICK alice\r\n")
    }

    @Test(arguments: ProxyProtocol.Version.allCases) func unknownAddresses(_ version: ProxyProtocol.Version) throws {
        var header = ProxyProtocol.header(version, nil)
        let outcome = try ProxyProtocol.read(&header)
        #expect(outcome == .header(nil, isSecure: false))
    }

    @Test func mixedAddressFamiliesAreNotSent() throws {
        let mixed = ProxiedAddresses(
            source: try SocketAddress(ipAddress: "192.0.2.7", port: 1),
            destination: try SocketAddress(ipAddress: "2001:db8::1", port: 2))
        var header = ProxyProtocol.header(.v1, mixed)
        let outcome = try ProxyProtocol.read(&header)
        #expect(outcome == .header(nil, isSecure: false))
    }

    @Test(arguments: [
        "NICK alice\r\n", "PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n", "PROXY TCP4 1.2.3.4 5.6.7.8 1 99999\r\n",
        "PROXY TCP4 ::1 ::1 1 2\r\n", "PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n", "PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n",
        "PROXY TCP4 1.2.3.4  5.6.7.8 1 2\r\n", "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\n", "PROXYTCP4 1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXX",
    ]) func malformedV1(_ text: String) {
        #expect(throws: ProxyProtocolError.malformed) {
            var buffer = ByteBuffer(string: text)
            return try ProxyProtocol.read(&buffer)
        }
    }

    @Test func anEndlessV1HeaderIsRefused() {
        #expect(throws: ProxyProtocolError.tooLong) {
            var buffer = ByteBuffer(string: "PROXY TCP4 " + String(repeating: "1", count: 200))
            return try ProxyProtocol.read(&buffer)
        }
    }

    @Test func malformedV2() throws {
        let good = Array(ProxyProtocol.header(.v2, try pair("192.0.2.7", "198.51.100.1")).readableBytesView)
        func refusal(_ change: (inout [UInt8]) -> Void) -> ProxyProtocolError? {
            var bytes = good
            change(&bytes)
            var buffer = ByteBuffer(bytes: bytes)
            do throws(ProxyProtocolError) {
                _ = try ProxyProtocol.read(&buffer)
                return nil
            } catch {
                return error
            }
        }
        #expect(refusal { $0[12] = 0x11 } == .unsupportedVersion)
        #expect(refusal { $0[12] = 0x22 } == .malformed)
        #expect(refusal { $0[13] = 0x99 } == .malformed)
        #expect(refusal { $0[3] = 0 } == .malformed)
        #expect(refusal { $0[14] = 0xFF } == .tooLong)
        #expect(
            refusal { bytes in
                bytes[15] = 4
                bytes.removeLast(8)
            } == .malformed)
        #expect(refusal { _ in } == nil)
    }

    /// Section 2.2.6: the TLV of a client by TLS, as InspIRCd and HAProxy read and write it.
    @Test(arguments: [false, true], addresses)
    func theTLSOfAClient(_ hasCertificate: Bool, _ ends: (String, String)) throws {
        let expected = try pair(ends.0, ends.1)
        let digits = String(repeating: "5a", count: 32)
        let options: [Substring] = hasCertificate ? ["secure", "certfp-sha-256=\(digits)"] : ["secure"]
        let security = try #require(ClientSecurity(options: options))
        var header = ProxyProtocol.header(.v2, expected, security: security)
        let plain = Array(ProxyProtocol.header(.v2, expected).readableBytesView)
        let bytes = Array(header.readableBytesView)
        #expect(bytes.suffix(8) == [0x20, 0, 5, hasCertificate ? 7 : 1, 0, 0, 0, 1])
        #expect(bytes[15] == plain[15] + 8 && bytes[16..<plain.count] == plain[16...])
        for length in 0..<header.readableBytes {
            var cut = header.getSlice(at: header.readerIndex, length: length) ?? ByteBuffer()
            #expect(try ProxyProtocol.read(&cut) == .incomplete)
        }
        #expect(try ProxyProtocol.read(&header) == .header(expected, isSecure: true))
        // Version 1 has no room for it, and neither has a header without addresses.
        #expect(ProxyProtocol.header(.v1, expected, security: security) == ProxyProtocol.header(.v1, expected))
        #expect(ProxyProtocol.header(.v2, nil, security: security) == ProxyProtocol.header(.v2, nil))
    }

    /// Other values are skipped; a client that the proxy has not got by TLS is none, and a value has to be whole.
    @Test func valuesBehindTheAddresses() throws {
        func outcome(_ values: [UInt8]) throws(ProxyProtocolError) -> ProxyProtocol.Outcome {
            let ends: [UInt8] = [192, 0, 2, 7, 198, 51, 100, 1, 0x9C, 0x40, 0x1A, 0x0B]
            let signature: [UInt8] = [0x0D, 0x0A, 0x0D, 0x0A, 0, 0x0D, 0x0A, 0x51, 0x55, 0x49, 0x54, 0x0A]
            var bytes = ByteBuffer(bytes: signature + [0x21, 0x11, 0, UInt8(12 + values.count)] + ends + values)
            return try ProxyProtocol.read(&bytes)
        }
        let expected = try pair("192.0.2.7", "198.51.100.1")
        let alpn: [UInt8] = [1, 0, 3, 105, 114, 99]
        let version: [UInt8] = [0x21, 0, 3, 49, 46, 51]
        let nested: [UInt8] = [0x20, 0, 11, 1, 0, 0, 0, 1] + version
        for (values, isSecure) in [
            (alpn, false), (alpn + nested, true), (nested + alpn, true), ([0x20, 0, 5, 6, 0, 0, 0, 1], false),
            ([0x20, 0, 4, 1, 0, 0, 0], false), ([], false),
        ] {
            #expect(try outcome(values) == .header(expected, isSecure: isSecure), "\(values)")
        }
        for values: [UInt8] in [[0x20], [0x20, 0], [0x20, 0, 5, 1], alpn + [0x20, 1, 0, 1]] {
            #expect(throws: ProxyProtocolError.malformed) { try outcome(values) }
        }
    }

    @Test func randomBytesNeverTrap() {
        var random = SeededGenerator(seed: 3)
        for _ in 0..<5000 {
            let start: [UInt8] = Bool.random(using: &random) ? Array("PROXY ".utf8) : [0x0D, 0x0A, 0x0D, 0x0A]
            let count = Int.random(in: 0..<64, using: &random)
            let bytes = (0..<count).map { _ in UInt8.random(in: 0...255, using: &random) }
            var buffer = ByteBuffer(bytes: start + bytes)
            _ = try? ProxyProtocol.read(&buffer)
        }
    }
}

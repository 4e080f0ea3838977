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
        #expect(outcome == .header(expected))
        #expect(String(buffer: whole) == "NICK alice\r\n")
    }

    @Test(arguments: ProxyProtocol.Version.allCases) func unknownAddresses(_ version: ProxyProtocol.Version) throws {
        var header = ProxyProtocol.header(version, nil)
        let outcome = try ProxyProtocol.read(&header)
        #expect(outcome == .header(nil))
    }

    @Test func mixedAddressFamiliesAreNotSent() throws {
        let mixed = ProxiedAddresses(
            source: try SocketAddress(ipAddress: "192.0.2.7", port: 1),
            destination: try SocketAddress(ipAddress: "2001:db8::1", port: 2))
        var header = ProxyProtocol.header(.v1, mixed)
        let outcome = try ProxyProtocol.read(&header)
        #expect(outcome == .header(nil))
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

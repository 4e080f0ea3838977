import NIOCore
import Testing

@testable import IRCServer

/// Lines of IRC and messages of a WebSocket, without a socket.
@Suite struct WebSocketLinesTests {
    private static let notUTF8: [UInt8] = Array("PRIVMSG #room :caf".utf8) + [0xE9]

    private func line(_ bytes: some Sequence<UInt8>, isText: Bool = true) throws -> String? {
        try WebSocketLines.line(ByteBuffer(bytes: bytes), isText: isText).map { String(buffer: $0) }
    }

    @Test func aMessageIsOneLine() throws {
        #expect(try line("PING x".utf8) == "PING x\r\n")
        // Some clients send the end of the line too.
        for end in ["\r\n", "\n", "\r"] { #expect(try line("PING x\(end)".utf8) == "PING x\r\n") }
        #expect(try line("".utf8) == nil && line("\r\n".utf8) == nil)
    }

    @Test(arguments: ["PING x\r\nQUIT", "PING x\nQUIT", "PING x\rQUIT", "PING\0x", "\n\nQUIT", "PING x\n\r"])
    func severalLinesAreRefused(_ text: String) {
        #expect(throws: WebSocketLineFault.notALine) { try line(text.utf8) }
        #expect(throws: WebSocketLineFault.notALine) { try line(text.utf8, isText: false) }
    }

    @Test func textIsUTF8AndBinaryIsAnything() throws {
        #expect(throws: WebSocketLineFault.notALine) { try line(Self.notUTF8) }
        let message = try WebSocketLines.line(ByteBuffer(bytes: Self.notUTF8), isText: false)
        #expect(message.map { Array(buffer: $0) } == Self.notUTF8 + [0x0D, 0x0A])
    }

    @Test func theLengthHasALimit() throws {
        let longest = [UInt8](repeating: 0x61, count: WebSocketLines.limit)
        #expect(try line(longest)?.utf8.count == WebSocketLines.limit + 2)
        #expect(throws: WebSocketLineFault.tooLong) { try line(longest + [0x61]) }
    }

    /// The end of a line may come in another write than its beginning, at any place.
    @Test func linesAreMessagesWhereverTheyAreCut() {
        let bytes = Array(":a 001 b :hello\r\n:a 002 b :w\u{f6}rld\n\r\nPING :x\r\n".utf8)
        let expected = [":a 001 b :hello", ":a 002 b :w\u{f6}rld", "PING :x"]
        for cut in 0...bytes.count {
            var lines = WebSocketLines(.text)
            let first = lines.messages(ByteBuffer(bytes: bytes[..<cut]))
            let messages = first + lines.messages(ByteBuffer(bytes: bytes[cut...]))
            #expect(messages.map { String(buffer: $0) } == expected, "cut at \(cut)")
        }
        var lines = WebSocketLines(.text)
        let messages = bytes.flatMap { lines.messages(ByteBuffer(bytes: [$0])) }
        #expect(messages.map { String(buffer: $0) } == expected)
    }

    @Test func bytesThatAreNoTextAreReplacedInTextOnly() {
        let bytes = ByteBuffer(bytes: Self.notUTF8 + [0x0D, 0x0A])
        var (text, binary) = (WebSocketLines(.text), WebSocketLines(.binary))
        #expect(text.messages(bytes).map { String(buffer: $0) } == ["PRIVMSG #room :caf\u{FFFD}"])
        #expect(binary.messages(bytes).map { Array(buffer: $0) } == [Self.notUTF8])
    }

    @Test func theFirstKnownSubprotocolIsTaken() {
        #expect(LineSubprotocol.chosen(from: ["x", "binary.ircv3.net", "text.ircv3.net"]) == .binary)
        #expect(LineSubprotocol.chosen(from: ["text.ircv3.net"]) == .text)
        #expect(LineSubprotocol.chosen(from: ["mqtt"]) == nil && LineSubprotocol.chosen(from: []) == nil)
    }
}

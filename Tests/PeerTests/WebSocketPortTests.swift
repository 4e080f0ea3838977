import Foundation
import PeerKit
import TestThreads
import Testing

/// InspIRCd's own WebSocket port, and the same behind a gateway that does not know what its messages mean.
@Suite(.blocking) struct WebSocketPortTests {
    /// A way to the port of which nothing may be noticed.
    private struct Way: CustomStringConvertible {
        let policy: String
        let mapping: String
        let path: String

        var description: String { "\(policy), \(mapping)" }

        /// The messages of `/websocket` are inspected: the mapping has a login in them.
        static let all: [Way] = ["observe", "opportunistic"].flatMap { policy in
            [
                Way(policy: policy, mapping: "generic", path: "/"),
                Way(policy: policy, mapping: "rocketchat", path: "/websocket"),
            ]
        }
    }

    private struct Case: CustomStringConvertible {
        let name: String
        /// The text behind the command.
        let text: [UInt8]
        let opcode: WebSocketClient.Opcode

        var description: String { name }
    }

    /// Every line comes back to the client that sends it: what it shows was sent and received.
    private static let cases: [Case] = {
        let odd = Array("caf".utf8) + [0xE9]
        // The server cuts it inside a character.
        let long = Array(String(repeating: "\u{20AC}", count: 300).utf8)
        // The client cuts it there.
        let cut = Array(long.prefix(400))
        return [
            Case(name: "UTF-8", text: Array("caf\u{E9}".utf8), opcode: .text),
            Case(name: "text that is not UTF-8", text: odd, opcode: .text),
            Case(name: "binary", text: odd, opcode: .binary),
            Case(name: "cut by the server", text: long, opcode: .text),
            Case(name: "cut by the client", text: cut, opcode: .text),
            Case(name: "cut by the client, binary", text: cut, opcode: .binary),
            Case(name: "longer than every line", text: [UInt8](repeating: 0x61, count: 4_000), opcode: .text),
        ]
    }()

    /// What a client sees of all cases. Its nick is the same in each run, and so is the length of its prefix.
    private static func play(_ port: UInt16, _ path: String) throws -> [String] {
        // InspIRCd refuses requests that name no page.
        let socket = try WebClient(port: port).webSocket(path, headers: [("Origin", "http://page.test")])
        socket.carriesLines = true
        try socket.say("NICK page")
        try socket.say("USER page 0 * :page")
        try socket.expectLine(" 001 page ".utf8)
        var seen: [String] = []
        for (number, one) in cases.enumerated() {
            try socket.send(one.opcode, Array("PRIVMSG page :\(number) ".utf8) + one.text)
            let line = try socket.expectLine(" PRIVMSG page :\(number) ".utf8)
            let bytes = line.bytes.map { String($0, radix: 16) }.joined(separator: " ")
            seen.append("\(one): \(line.isText ? "text" : "binary") of \(line.bytes.count): \(bytes)")
        }
        try socket.say("QUIT")
        _ = try socket.expectEnd()
        return seen
    }

    @Test(arguments: [InspIRCd.WebSocketForm.text, .binary])
    func everyMessagePassesAsItIs(_ form: InspIRCd.WebSocketForm) throws {
        var options = InspIRCd.Options()
        options.webSocket = form
        let server = try InspIRCd(options)
        defer { server.stop() }
        let port = try #require(server.webSocketPort)
        let direct = try Self.play(port, "/")
        #expect(direct.allSatisfy { $0.contains(form == .text ? ": text of" : ": binary of") })
        for way in Way.all {
            let gateway = try JSONLab.gateway(JSONLab.mapping(way.mapping), upstream: port, policy: way.policy)
            defer { gateway.stop() }
            let seen = try Self.play(gateway.port, way.path)
            for (seen, expected) in zip(seen, direct) { #expect(seen == expected, "\(way)") }
        }
    }
}

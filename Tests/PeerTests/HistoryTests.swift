import Foundation
import PeerKit
import TestKit
import TestThreads
import Testing

/// InspIRCd plays back what was said in a room (`chanhistory`), in a batch or without one.
@Suite(.blocking, .serialized) struct HistoryTests {
    /// Modules that a server may be without: then it plays back with tags only, or with bare lines.
    enum Server: CaseIterable, Sendable {
        case whole, withoutBatch, bare

        var without: Set<String> {
            switch self {
            case .whole: []
            case .withoutBatch: ["ircv3_batch", "ircv3_labeledresponse"]
            case .bare: ["ircv3_batch", "ircv3_labeledresponse", "ircv3_servertime", "ircv3_ctctags"]
            }
        }
    }

    private func enter(_ person: IRCClient) throws -> [IRCLine] {
        person.send("JOIN #room")
        try person.expect("366")
        return try person.synchronize()
    }

    private func texts(_ lines: [IRCLine]) -> [String] {
        lines.filter { $0.command == "PRIVMSG" }.map(\.body)
    }

    private func noticeCount(_ person: IRCClient, _ words: String) -> Int {
        person.transcript.count { $0.command == "NOTICE" && $0.body.contains(words) }
    }

    @Test(arguments: Server.allCases, [["sasl"], ["sasl", "batch", "server-time", "message-tags", "echo-message"]])
    func forThoseWhoWereThere(_ server: Server, _ caps: [String]) throws {
        let accounts = try AccountLab(accounts: ["anna", "bert", "cora"]) { $0.without = server.without }
        let lab = try Lab(accounts.server, policy: "hosted")
        defer {
            lab.stop()
            accounts.services.stop()
        }
        func login(_ nick: String, _ account: String) throws -> IRCClient {
            try AccountLab.login(lab.gateway.port, nick: nick, account: account, caps: caps)
        }
        let anna = try login("anna", "anna")
        _ = try enter(anna)
        anna.send("MODE #room +H 20:1h")
        try anna.expect("MODE")
        anna.send("PRIVMSG #room :nobody-else alone")
        _ = try anna.synchronize()
        var bert = try login("bert", "bert")
        #expect(texts(try enter(bert)).isEmpty)
        #expect(noticeCount(bert, "before you came") == 1)
        let long = "nobody-else " + String(repeating: "long-", count: 80)
        let sent = (0..<4).map { "nobody-else \($0)" } + [long]
        for text in sent { anna.send("PRIVMSG #room :\(text)") }
        for text in sent { try bert.expectMessage(text) }
        bert.send("PRIVMSG #room :nobody-else from bert")
        try anna.expectMessage("nobody-else from bert")
        // Once for each connection.
        _ = try bert.synchronize()
        bert.send("PART #room")
        #expect(texts(try enter(bert)).isEmpty)
        bert.send("QUIT")
        try bert.expectEnd()
        bert = try login("bert2", "bert")
        let again = texts(try enter(bert))
        #expect(again == sent + ["nobody-else from bert"])
        // Newcomers: with an account, without one.
        let cora = try login("cora", "cora")
        let dora = try lab.person("dora")
        for late in [cora, dora] {
            #expect(texts(try enter(late)).isEmpty)
            late.send("PART #room")
            #expect(texts(try enter(late)).isEmpty)
            #expect(noticeCount(late, "before you came") == 1)
            #expect(late.transcript.allSatisfy { !$0.text.contains("?PAWL:") })
            #expect(noticeCount(late, "could not be opened") + noticeCount(late, "withheld") == 0)
        }
        anna.send("PRIVMSG #room :nobody-else after")
        for reader in [bert, cora, dora] { try reader.expectMessage("nobody-else after") }
        #expect(!lab.tap.shows("nobody-else"))
        // The gateway keeps texts in memory only. Somebody must stay, or the server forgets the room.
        let erik = try lab.outsider("erik")
        _ = try enter(erik)
        try lab.gateway.restart()
        let last = try login("bert3", "bert")
        #expect(texts(try enter(last)).isEmpty)
        // A server that says nothing about time cannot be told from one that forges.
        if server != .bare {
            #expect(noticeCount(last, "could not be opened") + noticeCount(last, "withheld") == 0)
            #expect(noticeCount(last, "does not have their keys") == 1, "\(last.transcript.suffix(20))")
        }
        erik.close()
    }

    @Test(arguments: [Server.whole, .withoutBatch]) func whatIsCutIsCalledTruncated(_ server: Server) throws {
        let accounts = try AccountLab(accounts: ["anna", "bert"]) { $0.without = server.without }
        let lab = try Lab(accounts.server, policy: "hosted")
        defer {
            lab.stop()
            accounts.services.stop()
        }
        let anna = try AccountLab.login(lab.gateway.port, nick: "anna", account: "anna")
        var bert = try AccountLab.login(lab.gateway.port, nick: "bert", account: "bert")
        _ = try enter(anna)
        _ = try enter(bert)
        anna.send("MODE #room +H 4:1h")
        try anna.expect("MODE")
        let sent = (0..<3).map { "nobody-else \($0) " + String(repeating: "long-", count: 80) }
        for text in sent { anna.send("PRIVMSG #room :\(text)") }
        for text in sent { try bert.expectMessage(text) }
        bert.send("QUIT")
        try bert.expectEnd()
        bert = try AccountLab.login(lab.gateway.port, nick: "bert2", account: "bert")
        #expect(texts(try enter(bert)) == [sent[2]])
        try eventually("truncated") {
            _ = bert.drain(for: .milliseconds(20))
            return noticeCount(bert, "An earlier message from anna cannot be opened") == 1
        }
        #expect(noticeCount(bert, "did not arrive") == 0)
        anna.send("PRIVMSG #room :nobody-else after")
        try bert.expectMessage("nobody-else after")
        #expect(!lab.tap.shows("nobody-else"))
    }
}

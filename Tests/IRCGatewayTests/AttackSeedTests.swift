import Envelope
import Protection
import TestKit
import Testing

/// A backend that drops, repeats, holds back, alters and renames under a seed. Nothing is shown that was not said, nothing
/// twice, nothing under another's name; and when it behaves again, people go on.
@Suite struct AttackSeedTests {
    private final class Chaos {
        private var source: SeededGenerator
        private var held: [String] = []
        private var past: [String] = []
        let nicks: [String]
        var isOn = true
        /// Where keys are not known yet, a name is what the backend says.
        let renames: Bool

        init(seed: UInt64, nicks: [String], renames: Bool) {
            source = SeededGenerator(seed: seed &* 7919 &+ 13)
            (self.nicks, self.renames) = (nicks, renames)
        }

        func number(_ limit: Int) -> Int {
            var bytes: [UInt8] = [0, 0, 0, 0]
            bytes.withUnsafeMutableBytes { source.fill($0) }
            return bytes.reduce(0) { $0 << 8 | Int($1) } % limit
        }

        func relay(_ line: String) -> [String] {
            guard isOn else { return [line] }
            past.append(line)
            switch number(16) {
            case 0: return []
            case 1: return [line, line]
            case 2:
                held.append(line)
                return []
            case 3:
                // What was held comes now, the newest first.
                defer { held = [] }
                return held.reversed() + [line]
            case 4: return [altered(line), line]
            case 5 where renames: return [renamed(line), line]
            case 6 where renames: return [renamed(line)]
            case 7: return [past[number(past.count)], line]
            case 8:
                let sender = nicks[number(nicks.count)]
                let target = line.split(separator: " ").dropFirst(2).first ?? "x"
                return [":\(sender)!\(sender)@host.test PRIVMSG \(target) :[e2e] \(sender) says forged", line]
            default: return [line]
            }
        }

        private func altered(_ line: String) -> String {
            var bytes = Array(line.utf8)
            guard let start = bytes.firstIndex(of: UInt8(ascii: "?")), start + 1 < bytes.count else { return line }
            let place = start + 1 + number(bytes.count - start - 1)
            bytes[place] = Array("ABCdef123+/=:.,".utf8)[number(15)]
            return String(decoding: bytes, as: UTF8.self)
        }

        private func renamed(_ line: String) -> String {
            let (one, other) = (nicks[number(nicks.count)], nicks[number(nicks.count)])
            return line.replacing(":\(one)!", with: ":\(other)!")
        }
    }

    private func people(_ count: Int, room: Bool) throws -> ([World], [World.Client], [String]) {
        let nicks = Array(["alice", "bob", "carol"].prefix(count))
        var worlds: [World] = []
        for index in 0..<count {
            worlds.append(
                try World(.opportunistic, offers: nil, seed: UInt64(index + 1), beside: worlds.last, sidecar: true))
        }
        let clients = zip(worlds, nicks).map { $0.connect($1) }
        for (world, client) in zip(worlds, clients) where room { world.send(client, "JOIN #room") }
        return (worlds, clients, nicks)
    }

    /// What was shown as sealed: said by the one whose name it has, and once.
    private func check(
        _ clients: [World.Client], _ nicks: [String], _ sent: [String: Set<String>], _ comment: Comment
    ) {
        for client in clients {
            var seen: Set<String> = []
            for line in client.read where line.contains(" PRIVMSG ") {
                let nick = String(line.dropFirst().prefix { $0 != "!" })
                let text = String(line.split(separator: " :", maxSplits: 1).last ?? "")
                guard text.hasPrefix("[e2e]") else { continue }
                let words = String(text.dropFirst(6))
                #expect(sent[nick]?.contains(words) == true, "\(comment): under the name \(nick): \(words)")
                #expect(seen.insert(text).inserted, "\(comment): twice: \(text)")
            }
            #expect(!client.read.contains { $0.contains("?PAWL") }, comment)
        }
    }

    @Test(arguments: 0..<40) func underASeed(_ seed: Int) throws {
        let isRoom = seed % 2 == 1
        let (worlds, clients, nicks) = try people(isRoom ? 3 : 2, room: isRoom)
        let isFromTheStart = seed % 4 >= 2
        let chaos = Chaos(seed: UInt64(seed), nicks: nicks, renames: !isFromTheStart)
        var sent: [String: Set<String>] = [:]
        func send(_ index: Int, _ words: String) {
            let text = "\(nicks[index]) says \(words)"
            sent[nicks[index], default: []].insert(text)
            worlds[index].send(clients[index], "PRIVMSG \(isRoom ? "#room" : nicks[1 - index]) :\(text)")
        }
        // Half of the seeds are hostile from the first line on.
        if !isFromTheStart {
            for round in 0..<3 { for index in nicks.indices { send(index, "before \(round)") } }
        }
        worlds[0].backend.relay = { chaos.relay($0) }
        for round in 0..<12 {
            for index in nicks.indices where chaos.number(3) > 0 { send(index, "\(round)") }
            if chaos.number(3) == 0 { for world in worlds { world.advance(seconds: 40) } }
        }
        chaos.isOn = false
        var missing: Set<String> = []
        for round in 0..<12 {
            for world in worlds { world.advance(seconds: 90) }
            for index in nicks.indices { send(index, "after \(round)") }
            missing = []
            for (index, client) in clients.enumerated() {
                for (other, nick) in nicks.enumerated() where other != index {
                    let text = "[e2e] \(nick) says after \(round)"
                    if !client.shown(from: nick).contains(text) { missing.insert("\(nick) to \(nicks[index])") }
                }
            }
            if missing.isEmpty { break }
        }
        check(clients, nicks, sent, "seed \(seed)")
        #expect(missing.isEmpty, "seed \(seed): \(missing.sorted())")
    }
}

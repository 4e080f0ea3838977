/// The messenger beside the same app without encryption, what an open chat takes, and direct connections beside TCP.
struct MessengerTable {
    /// Few and many chats: what they differ by is the chats'.
    private static let chats = (few: 10, many: 1000)

    let workbench: Workbench
    let isQuick: Bool

    func print() throws {
        try self.printMessages()
        try self.printMemory()
        try self.printRoundTrips()
    }

    private var rounds: Int { self.isQuick ? 1 : 5 }

    /// Measures all ways in each round, one after the other.
    private func figures(of ways: [MessengerWay]) throws -> [MessengerWay: [[String: Double]]] {
        var figures: [MessengerWay: [[String: Double]]] = [:]
        for round in 1...self.rounds {
            for way in ways {
                progress("messenger: \(way.rawValue), round \(round)")
                figures[way, default: []].append(try self.measure(way))
            }
        }
        return figures
    }

    // MARK: Messages

    private func printMessages() throws {
        let ways: [MessengerWay] = [.plain, .messenger]
        let figures = try self.figures(of: ways)
        var table = MarkdownTable(
            "Messenger: messages of \(MessengerLoad.size) bytes over a REST backend, \(MessengerLoad.window) in flight",
            ["way", "per second", "median ms", "p99 ms", "CPU µs each", "of the plain rate"])
        let plain = Self.median(figures[.plain], "rate")
        for way in ways {
            let rate = Self.median(figures[way], "rate")
            table.add([
                way.title, rate.text(), Self.median(figures[way], "median").text(1),
                Self.median(figures[way], "tail").text(1), Self.median(figures[way], "cpu").text(1),
                (rate / plain).text(2),
            ])
        }
        table.note(
            "ChatBackend in a process of its own, \(MessengerLoad.recipients) recipients in one process with the sender; the CPU "
                + "time is that of both. A message counts when the backend has it. The messenger's are stored with a sync before "
                + "they are sent, sealed, opened, and confirmed by a sealed receipt. The aim: 0.3.")
        table.print()
    }

    // MARK: Memory

    private func printMemory() throws {
        var table = MarkdownTable(
            "Messenger: memory of an open chat", ["chats", "KB, listed", "KB, after a text to each"])
        var sizes: [Int: [String: Double]] = [:]
        for chats in [Self.chats.few, self.isQuick ? 100 : Self.chats.many] {
            progress("messenger: \(chats) chats")
            let directory = "\(self.workbench.directory)/chats-\(chats)"
            let log = "\(self.workbench.directory)/messenger.log"
            let filling = try ChildProcess.again(
                ["messenger-fill", "--chats", "\(chats)", "--directory", directory], log: log)
            _ = try filling.waitForEnd()
            let opening = try ChildProcess.again(
                ["messenger-open", "--chats", "\(chats)", "--directory", directory], log: log)
            let figures = try Self.figures(try opening.waitForEnd())
            sizes[chats] = figures
            table.add(["\(chats)", (figures["listed"] ?? 0).text(), (figures["open"] ?? 0).text()])
        }
        if let few = sizes[Self.chats.few], let (count, many) = sizes.max(by: { $0.key < $1.key }) {
            let difference = Double(count - Self.chats.few)
            func each(_ name: String) -> String {
                (((many[name] ?? 0) - (few[name] ?? 0)) / difference).text(1)
            }
            table.add(["each of them", each("listed"), each("open")])
        }
        table.note(
            "Resident memory of a process that opens a stored history with so many chats. Each has a session and two messages. The "
                + "aim: 6 KB for each.")
        table.print()
    }

    // MARK: Direct connections

    private func printRoundTrips() throws {
        let ways: [MessengerWay] = [.rawTCP, .loopTCP, .peerToPeer]
        let figures = try self.figures(of: ways)
        var table = MarkdownTable(
            "Direct connections: round trips of \(MessengerLoad.size) bytes, one at a time",
            ["way", "per second", "median µs", "p99 µs", "CPU µs each", "of TCP's median"])
        let raw = Self.median(figures[.rawTCP], "median")
        for way in ways {
            let median = Self.median(figures[way], "median")
            table.add([
                way.title, Self.median(figures[way], "rate").text(), (median * 1000).text(1),
                (Self.median(figures[way], "tail") * 1000).text(1), Self.median(figures[way], "cpu").text(1),
                (median / raw).text(2),
            ])
        }
        table.note(
            "Both sides are in one process. TCP, two threads: they read and write blockingly. A task and event loops: a task that "
                + "writes by SwiftNIO and waits for the bytes that the other side writes back, without encryption. A direct "
                + "connection's round trip ends with the acknowledgement of the other side's app. The aim: 1.5.")
        table.print()
    }

    // MARK: Processes

    private func measure(_ way: MessengerWay) throws -> [String: Double] {
        let child = try ChildProcess.again(
            [
                "messenger-load", "--way", way.rawValue, "--seconds", self.isQuick ? "1" : "4", "--directory",
                self.workbench.directory,
            ], log: "\(self.workbench.directory)/messenger.log")
        return try Self.figures(try child.waitForEnd())
    }

    private static func median(_ figures: [[String: Double]]?, _ name: String) -> Double {
        (figures ?? []).compactMap { $0[name] }.median
    }

    private static func figures(_ text: String) throws -> [String: Double] {
        var figures: [String: Double] = [:]
        for line in text.split(separator: "\n") {
            let words = line.split(separator: " ")
            guard words.count == 2, let number = Double(words[1]) else { throw Failure("it printed: \(line)") }
            figures[String(words[0])] = number
        }
        return figures
    }
}

import Glibc
import NIOCore
import NIOPosix

/// Memory and storage of the gateway per hosted account: with a device and sessions, and nobody connected any more.
struct AccountTable {
    private static let accounts = 10_000
    /// People who are connected at the same time.
    private static let batch = 1000
    /// Conversations of each account; each end of one is a session.
    private static let conversations = [2, 4]
    private static let settleTime = TimeAmount.seconds(2)

    let workbench: Workbench
    let group: MultiThreadedEventLoopGroup
    let isQuick: Bool

    func print() throws {
        let accounts = self.isQuick ? 2000 : Self.accounts
        var table = MarkdownTable(
            "Memory per hosted account",
            [
                "conversations each", "accounts", "MB before", "MB with them", "KB/account", "KB stored/account",
                "s to make all",
            ])
        if self.workbench.pawl == nil {
            table.note("pawl is not built")
        } else {
            for conversations in Self.conversations {
                progress("accounts: \(accounts) with \(conversations) conversations")
                do {
                    table.add(try self.measure(accounts, conversations))
                } catch {
                    table.note("\(conversations) conversations: \(error)")
                }
            }
        }
        table.note(
            "\(Self.batch) people at a time register, are logged in, say something in each conversation and go; then nobody is "
                + "connected. Resident memory of the process. Before the first look as many have come and gone in silence, and "
                + "\(Self.batch) have talked."
        )
        table.note(
            "Each account has a device, and a session for each of its conversations. With them are the sessions that memory "
                + "keeps (50,000 at most), latches, and for a minute the nicks of those who have gone.")
        table.print()
    }

    private func measure(_ accounts: Int, _ conversations: Int) throws -> [String] {
        let stack = try Stack(.hosted, logsIn: true, on: self.workbench)
        defer { stack.stop() }
        guard let proxy = stack.proxy else { throw Failure("there is no proxy to measure") }
        // What connections leave behind is no account's: as many come and go without a word, and get no device.
        for start in stride(from: 0, to: accounts, by: Self.batch) {
            try LoadClient(
                group: self.group, target: stack.target, connections: min(Self.batch, accounts - start),
                prefix: Nicks.nextPrefix()
            ).close()
        }
        try self.make(Self.batch, conversations, stack)
        pause(Self.settleTime)
        let before = try proxy.residentKilobytes()
        let stored = try self.stored(stack)
        let begin = NIODeadline.now()
        for start in stride(from: 0, to: accounts, by: Self.batch) {
            try self.make(min(Self.batch, accounts - start), conversations, stack)
        }
        let seconds = Double((NIODeadline.now() - begin).nanoseconds) / 1e9
        pause(Self.settleTime)
        let after = try proxy.residentKilobytes()
        let grown = try self.stored(stack) - stored
        return [
            "\(conversations)", Double(accounts).text(), (before / 1024).text(1), (after / 1024).text(1),
            ((after - before) / Double(accounts)).text(1), (grown / 1024 / Double(accounts)).text(1),
            seconds.text(1),
        ]
    }

    /// Lets so many new people come, talk to each other in a ring and go.
    private func make(_ people: Int, _ conversations: Int, _ stack: Stack) throws {
        let client = try LoadClient(
            group: self.group, target: stack.target, connections: people, prefix: Nicks.nextPrefix())
        let complaint = try client.talkInRing(distance: conversations / 2)
        try client.close()
        guard complaint.isEmpty else { throw Failure(complaint) }
    }

    /// Bytes of the store's files.
    private func stored(_ stack: Stack) throws -> Double {
        let path = "\(stack.directory)/data"
        guard let directory = opendir(path) else { throw Failure("\(path): \(lastError())") }
        defer { closedir(directory) }
        var bytes = 0.0
        while let entry = readdir(directory) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            var status = stat()
            if stat("\(path)/\(name)", &status) == 0, status.st_mode & S_IFMT == S_IFREG {
                bytes += Double(status.st_size)
            }
        }
        return bytes
    }
}

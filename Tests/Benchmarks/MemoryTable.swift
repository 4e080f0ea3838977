import NIOCore
import NIOPosix

/// Memory of the proxy per connection that is registered and silent.
struct MemoryTable {
    private static let wanted = 10_000
    /// Connections that come and go before the first look: what is allocated once is not a connection's.
    private static let warmUp = 200
    private static let settleTime = TimeAmount.seconds(2)

    let workbench: Workbench
    let group: MultiThreadedEventLoopGroup
    let isQuick: Bool

    func print() throws {
        let connections = self.isQuick ? 1000 : min(Self.wanted, self.workbench.clientLimit)
        var table = MarkdownTable(
            "Memory per idle connection",
            ["variant", "connections", "MB before", "MB with them", "KB/connection", "s to register all"])
        for isTLS in [false, true] {
            for variant in self.workbench.variants where variant != .direct {
                if isTLS, variant == .byteRelay || variant == .off { continue }
                let name = "\(variant.name), \(isTLS ? "TLS" : "plain")"
                progress("memory: \(name)")
                do {
                    table.add([name] + (try self.measure(variant, isTLS, connections)))
                } catch {
                    table.add([name, Double(connections).text(), "–", "–", "–", "–"])
                    table.note("\(name): \(error)")
                }
            }
        }
        table.note("Resident memory of the proxy's process; what the kernel holds for sockets is not in it.")
        if connections < Self.wanted {
            table.note(
                self.isQuick
                    ? "A quick run: not \(Self.wanted) connections."
                    : "Fewer than \(Self.wanted): a process may hold \(self.workbench.descriptors) files open here.")
        }
        table.print()
    }

    private func measure(_ variant: Variant, _ isTLS: Bool, _ connections: Int) throws -> [String] {
        let stack = try Stack(variant, isTLS: isTLS, on: self.workbench)
        defer { stack.stop() }
        guard let proxy = stack.proxy else { throw Failure("there is no proxy to measure") }
        try LoadClient(
            group: self.group, target: stack.target, connections: Self.warmUp, prefix: Nicks.nextPrefix()
        ).close()
        pause(Self.settleTime)
        let before = try proxy.residentKilobytes()
        let begin = NIODeadline.now()
        let client = try LoadClient(
            group: self.group, target: stack.target, connections: connections, prefix: Nicks.nextPrefix())
        let seconds = Double((NIODeadline.now() - begin).nanoseconds) / 1e9
        pause(Self.settleTime)
        let after = try proxy.residentKilobytes()
        try client.close()
        return [
            Double(connections).text(), (before / 1024).text(1), (after / 1024).text(1),
            ((after - before) / Double(connections)).text(1), seconds.text(1),
        ]
    }
}

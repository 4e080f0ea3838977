import ArgumentParser

/// Our ratchet library in a process of its own, which prints the same figures as the peers under RatchetPeers do.
struct RatchetLoad: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "ratchet-load", abstract: "Measures the ratchet library and prints its figures.")

    func run() throws {
        try RatchetFigures.measure()
    }
}

/// What stands between the clients and the sink.
enum Variant: String, CaseIterable {
    case direct
    case haproxy
    case byteRelay
    case off
    case observe
    case hosted

    /// The name in a table.
    var name: String {
        switch self {
        case .direct: "direct"
        case .haproxy: "HAProxy"
        case .byteRelay: "byte relay"
        case .off, .observe, .hosted: "pawl, `\(self.rawValue)`"
        }
    }

    /// Whether it is pawl under one of its policies.
    var isPawl: Bool { [.off, .observe, .hosted].contains(self) }
}

/// The programs and the place that all benchmarks need.
struct Workbench {
    /// The path of pawl, or `nil` where only its peers are measured.
    var pawl: String?
    /// The path of HAProxy.
    var haproxy: String
    /// An empty directory, on the file system that is to be measured.
    var directory: String
    /// Where the executables of the ratchet's peers are, or `nil` where they are not to be measured.
    var ratchetPeers: String?
    /// Where the executable of the queue's peers is, or `nil` where they are not to be measured.
    var queuePeers: String?
    /// How many files one process may hold open.
    var descriptors: Int

    /// Descriptors of a proxy that are not connections: loops, listeners, the store, and room to accept one more.
    private static let descriptorsAside = 400

    /// How many clients a proxy has room for, with two descriptors each.
    var clientLimit: Int { (self.descriptors - Self.descriptorsAside) / 2 }

    /// The variants that can be measured; without pawl the byte relay stands in for it.
    var variants: [Variant] {
        self.pawl == nil ? [.direct, .haproxy, .byteRelay] : [.direct, .haproxy, .off, .observe, .hosted]
    }
}

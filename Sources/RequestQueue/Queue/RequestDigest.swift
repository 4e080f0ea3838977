/// Tells whether two requests are the same: 128 bits over their stored form. It keeps one tenant from mistakes; between tenants
/// nothing depends on it.
struct RequestDigest: Hashable, Sendable {
    private let high: UInt64
    private let low: UInt64

    /// - Parameter form: the request's stored form. What it depends on is not part of what it is.
    init(of request: QueuedRequest, form: [UInt8]) {
        var bytes = form
        if !request.dependsOn.isEmpty {
            var independent = request
            independent.dependsOn = []
            bytes = RequestForm.encode(independent)
        }
        if let lane = request.lane { bytes.append(contentsOf: lane.utf8) }
        self.init(bytes)
    }

    /// FNV-1a with 64 bits, once forwards and once backwards.
    private init(_ bytes: [UInt8]) {
        func hash(_ bytes: some Sequence<UInt8>) -> UInt64 {
            bytes.reduce(0xcbf2_9ce4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
        }
        (high, low) = (hash(bytes), hash(bytes.reversed()))
    }
}

package import Foundation

/// What a bound transport does with requests. Services make one from their processor.
package struct Processing: Sendable {
    /// Whether a service with this protocol is there.
    package let supports: @Sendable (ProtocolID) -> Bool
    package let process: @Sendable (Data) async -> Reply

    package init(
        supports: @escaping @Sendable (ProtocolID) -> Bool, process: @escaping @Sendable (Data) async -> Reply
    ) {
        self.supports = supports
        self.process = process
    }
}

extension Result<Data, TesseractError> {
    /// The reply, or an error if it is larger than allowed.
    package func bounded(_ limits: TransportLimits) -> Self {
        guard case .success(let data) = self, data.count > limits.message else { return self }
        return .failure(.tooLarge(reason: "a reply has \(data.count) bytes; the limit is \(limits.message)"))
    }
}

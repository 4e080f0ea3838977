public import TransportsCore

/// Serves clients in the same process.
public final class MemoryTransport: Transport {
    private let link: MemoryLink
    private let limits: TransportLimits

    /// - Parameter link: What the client's transport is made with.
    public init(_ link: MemoryLink, limits: TransportLimits = TransportLimits()) {
        (self.link, self.limits) = (link, limits)
    }

    /// Binds the processor to the link; an earlier one is unbound.
    public func bind(processor: TransportProcessor) -> any BoundTransport {
        Bound(link, processor.processing, limits)
    }

    private final class Bound: BoundTransport {
        private let link: MemoryLink
        private let binding: UInt64
        private let limits: TransportLimits

        init(_ link: MemoryLink, _ processing: Processing, _ limits: TransportLimits) {
            (self.link, self.limits) = (link, limits)
            binding = link.bind(processing)
        }

        deinit { link.unbind(binding) }

        func close() async {
            let (link, binding) = (link, binding)
            await within(limits.drain, late: (), cancelled: ()) { await link.drain(binding) }
            link.unbind(binding)
        }
    }
}

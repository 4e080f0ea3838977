/// Receiving (Double Ratchet, sections 4.5 and 6.3).
extension TripleRatchet {
    /// Opens a message and only then takes the step. Returns how many messages were newly skipped.
    mutating func receive(
        _ message: Message, authenticating data: [UInt8], into output: inout [UInt8]
    ) throws(RatchetError) -> Int {
        if let receiving, let header = try open(message, with: receiving.headerKey) {
            // No sender puts another ratchet key into the same chain.
            guard header.ratchetKey == peerKey else { throw .malformed }
            guard header.number >= receiving.next else {
                return try receiveLate(header, of: receiving.number, message, authenticating: data, into: &output)
            }
            return try receiveCurrent(receiving, header, message, authenticating: data, into: &output)
        }
        if let sending, let header = try open(message, with: nextReceivingHeader) {
            return try receiveStep(sending, header, message, authenticating: data, into: &output)
        }
        for chain in finished.chains.reversed() {
            guard let header = try open(message, with: chain.headerKey) else { continue }
            return try receiveLate(header, of: chain.number, message, authenticating: data, into: &output)
        }
        throw .authenticationFailed
    }

    private func open(_ message: Message, with key: HeaderKey) throws(RatchetError) -> MessageHeader? {
        guard let bytes = key.open(message.sealedHeader, hint: message.hint, first: message.first) else { return nil }
        return try MessageHeader(bytes, minimumVersion: postQuantum.minimumVersion)
    }

    private mutating func receiveLate(
        _ header: MessageHeader, of chain: UInt32, _ message: Message, authenticating data: [UInt8],
        into output: inout [UInt8]
    ) throws(RatchetError) -> Int {
        guard let index = finished.index(of: chain, number: header.number) else { throw .duplicate }
        var postQuantum = postQuantum
        try postQuantum.take(header.postQuantum)
        try finished.messageKey(at: index).open(message.sealedBody, authenticating: data, into: &output)
        finished.removeKey(at: index)
        self.postQuantum = postQuantum
        return 0
    }

    private mutating func receiveCurrent(
        _ chain: ReceivingChain, _ header: MessageHeader, _ message: Message, authenticating data: [UInt8],
        into output: inout [UInt8]
    ) throws(RatchetError) -> Int {
        let gap = header.number - chain.next
        guard gap <= RatchetLimits.maximumSkip else { throw .tooFarAhead }
        guard header.number < UInt32.max else { throw .exhausted }
        var postQuantum = postQuantum
        var (key, passage) = try postQuantum.advance(to: header.postQuantum, gap: gap)
        try postQuantum.take(header.postQuantum)
        let place = chain.key.advanced(by: gap)
        try Self.combine(place.messageKey, key).open(message.sealedBody, authenticating: data, into: &output)

        var excess = finished.makeRoom(for: Int(gap))
        store(chain, to: header.number, &passage, omitting: &excess)
        receiving = ReceivingChain(
            headerKey: chain.headerKey, number: chain.number, key: place.next, next: header.number + 1)
        self.postQuantum = postQuantum
        return Int(gap)
    }

    private mutating func receiveStep(
        _ sending: SendingChain, _ header: MessageHeader, _ message: Message, authenticating data: [UInt8],
        into output: inout [UInt8]
    ) throws(RatchetError) -> Int {
        // A header of a new chain without a new key: the step that it leaves out is what makes its key secret.
        guard header.ratchetKey != peerKey else { throw .authenticationFailed }
        let missing = receiving.map { header.previousCount > $0.next ? header.previousCount - $0.next : 0 } ?? 0
        guard header.number <= RatchetLimits.maximumSkip, missing <= RatchetLimits.maximumSkip else {
            throw .tooFarAhead
        }
        let gap = missing + header.number
        let shared = try sending.pair.agree(with: try AgreementPublicKey(header.ratchetKey))
        let (nextRoot, first, nextHeader) = Self.step(root, shared)
        var postQuantum = postQuantum
        var (key, passage) = try postQuantum.advance(to: header.postQuantum, gap: gap)
        try postQuantum.take(header.postQuantum)
        let place = first.advanced(by: header.number)
        try Self.combine(place.messageKey, key).open(message.sealedBody, authenticating: data, into: &output)

        var excess = finished.makeRoom(for: Int(gap))
        var number: UInt32 = 0
        if let receiving {
            store(receiving, to: receiving.next + missing, &passage, omitting: &excess)
            finished.finish(FinishedChains.Chain(number: receiving.number, headerKey: receiving.headerKey))
            number = receiving.number + 1
        }
        let chain = ReceivingChain(headerKey: nextReceivingHeader, number: number, key: first, next: 0)
        store(chain, to: header.number, &passage, omitting: &excess)
        receiving = ReceivingChain(
            headerKey: chain.headerKey, number: number, key: place.next, next: header.number + 1)
        root = nextRoot
        peerKey = header.ratchetKey
        nextReceivingHeader = nextHeader
        previousCount = sending.next
        self.sending = nil
        self.postQuantum = postQuantum
        return Int(gap)
    }

    /// Keeps the combined keys from `chain.next` up to but not including `end`, except for the first `excess` ones.
    private mutating func store(
        _ chain: ReceivingChain, to end: UInt32, _ passage: inout SparsePostQuantumRatchet.Passage,
        omitting excess: inout Int
    ) {
        var key = chain.key
        var number = chain.next
        while number < end {
            let postQuantumKey = passage.next()
            if excess > 0 {
                excess -= 1
            } else {
                let combined = Self.combine(key.messageKey, postQuantumKey.messageKey.secret)
                finished.append(combined, chain: chain.number, number: number)
            }
            key = key.next
            number += 1
        }
    }
}

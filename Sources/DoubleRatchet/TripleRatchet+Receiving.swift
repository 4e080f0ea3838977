/// Receiving (Double Ratchet, sections 4.5 and 6.3).
extension TripleRatchet {
    /// A message with its associated data, the context to open it with, and the memory for its plaintext.
    package struct Opening {
        package let message: Message
        package let data: UnsafeRawBufferPointer
        let context: CipherContext
        /// As long as the plaintext; zeros if the body is not genuine.
        package let plaintext: UnsafeMutableRawBufferPointer

        fileprivate func openBody(with key: UnsafeRawBufferPointer) throws(RatchetError) {
            context.setKey(key)
            let isGenuine = CipherContext.zeroNonce.withUnsafeBytes {
                context.open(message.sealedBody, nonce: $0, authenticating: data, into: plaintext)
            }
            guard isGenuine else { throw .authenticationFailed }
        }
    }

    /// Opens a message, takes the step only if that succeeds, and returns the number of newly skipped messages.
    package mutating func receive(_ opening: Opening) throws(RatchetError) -> Int {
        // Copies only the header key: a copy of the chain would share its key and prevent stepping it in place.
        if let headerKey = receiving?.headerKey, let header = try open(opening, with: headerKey) {
            // A sender uses another ratchet key in the same chain only if its state was rolled back to before the
            // chain.
            guard header.ratchetKey == peerKey else { throw .diverged }
            return try receiveCurrent(header, opening)
        }
        if sending != nil, let header = try open(opening, with: nextReceivingHeader) {
            return try receiveStep(header, opening)
        }
        for chain in finished.chains.reversed() {
            guard let header = try open(opening, with: chain.headerKey) else { continue }
            return try receiveLate(header, of: chain.number, opening)
        }
        throw .authenticationFailed
    }

    private func open(_ opening: Opening, with key: HeaderKey) throws(RatchetError) -> MessageHeader? {
        let message = opening.message
        guard
            let bytes = key.open(
                message.sealedHeader, hint: message.hint, first: message.first, with: opening.context)
        else { return nil }
        return try MessageHeader(bytes, message.version, minimumVersion: postQuantum.minimumVersion)
    }

    private mutating func receiveLate(
        _ header: MessageHeader, of chain: UInt32, _ opening: Opening
    ) throws(RatchetError) -> Int {
        guard let index = finished.index(of: chain, number: header.number) else { throw .duplicate }
        guard postQuantum.canBeLate(header.postQuantum) else { throw .diverged }
        let effect = try postQuantum.effect(of: header.postQuantum)
        try opening.openBody(with: finished.messageKey(at: index))

        finished.removeKey(at: index)
        postQuantum.take(effect)
        return 0
    }

    private mutating func receiveCurrent(_ header: MessageHeader, _ opening: Opening) throws(RatchetError) -> Int {
        guard let (chain, next) = receiving.map({ ($0.number, $0.next) }) else { throw .authenticationFailed }
        guard header.number >= next else { return try receiveLate(header, of: chain, opening) }
        let gap = header.number - next
        guard gap <= RatchetLimits.maximumSkip else { throw .tooFarAhead }
        guard header.number < UInt32.max else { throw .exhausted }
        let keys = opening.context.keys
        try postQuantum.derive(header.postQuantum, gap: gap, into: keys.postQuantum)
        let effect = try postQuantum.effect(of: header.postQuantum)
        receiving?.key.derive(gap, into: keys.classical)
        try opening.openBody(with: keys.combine())

        if gap > 0, let receiving {
            var passage = postQuantum.passage(to: header.postQuantum, gap: gap)
            var excess = finished.makeRoom(for: Int(gap))
            store(receiving, to: header.number, &passage, omitting: &excess)
        }
        receiving?.key.goOn(from: keys.classical)
        receiving?.next = header.number + 1
        postQuantum.arrive(at: header.postQuantum, from: keys.postQuantum)
        postQuantum.take(effect)
        return Int(gap)
    }

    private mutating func receiveStep(_ header: MessageHeader, _ opening: Opening) throws(RatchetError) -> Int {
        guard let sending else { throw .authenticationFailed }
        // A header of a new chain without a new key: the missing step is what would make the chain's key secret.
        guard header.ratchetKey != peerKey else { throw .authenticationFailed }
        let missing = receiving.map { header.previousCount > $0.next ? header.previousCount - $0.next : 0 } ?? 0
        guard header.number <= RatchetLimits.maximumSkip, missing <= RatchetLimits.maximumSkip else {
            throw .tooFarAhead
        }
        let gap = missing + header.number
        let shared = try sending.pair.agree(with: try AgreementPublicKey(header.ratchetKey))
        let (nextRoot, first, nextHeader) = root.step(shared)
        let keys = opening.context.keys
        try postQuantum.derive(header.postQuantum, gap: gap, into: keys.postQuantum)
        let effect = try postQuantum.effect(of: header.postQuantum)
        first.derive(header.number, into: keys.classical)
        try opening.openBody(with: keys.combine())

        var passage = postQuantum.passage(to: header.postQuantum, gap: gap)
        var excess = finished.makeRoom(for: Int(gap))
        var number: UInt32 = 0
        if let receiving {
            store(receiving, to: receiving.next + missing, &passage, omitting: &excess)
            finished.finish(FinishedChains.Chain(number: receiving.number, headerKey: receiving.headerKey))
            number = receiving.number + 1
        }
        var chain = ReceivingChain(headerKey: nextReceivingHeader, number: number, key: first, next: 0)
        store(chain, to: header.number, &passage, omitting: &excess)
        chain.key.goOn(from: keys.classical)
        chain.next = header.number + 1
        receiving = chain
        root = nextRoot
        peerKey = header.ratchetKey
        nextReceivingHeader = nextHeader
        previousCount = sending.next
        self.sending = nil
        postQuantum.arrive(at: header.postQuantum, from: keys.postQuantum)
        postQuantum.take(effect)
        return Int(gap)
    }

    /// Stores the combined keys from `chain.next` up to but not including `end`, except for the first `excess` ones.
    private mutating func store(
        _ chain: ReceivingChain, to end: UInt32, _ passage: inout SparsePostQuantumRatchet.Passage,
        omitting excess: inout Int
    ) {
        guard chain.next < end else { return }
        withUnsafeTemporaryAllocation(byteCount: MessageKeys.size, alignment: 16) { memory in
            memory.initializeMemory(as: UInt8.self, repeating: 0)
            defer { SecretBytes.wipe(memory) }
            let keys = MessageKeys(memory)
            var key = chain.key
            for number in chain.next..<end {
                key.derive(into: keys.classical)
                key.goOn(from: keys.classical)
                passage.next(into: keys.postQuantum)
                if excess > 0 {
                    excess -= 1
                } else {
                    finished.append(chain: chain.number, number: number) { $0.copyMemory(from: keys.combine()) }
                }
            }
        }
    }
}

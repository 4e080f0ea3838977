#if CLibraries
    /// AES-256-GCM-SIV as RFC 8452 defines it, over the AES and GHASH of libcrypto.
    ///
    /// libcrypto 3.0 has no such cipher, and swift-crypto's allocates arrays and objects for every message. This code only
    /// reverses and counts bytes, in steps that depend on lengths only.
    extension CipherContext {
        /// Section 4, `encrypt`, under the key that is set: replaces the text in `bytes` by its ciphertext, and the last 16
        /// bytes by its tag.
        package func seal(
            _ bytes: UnsafeMutableRawBufferPointer, nonce: UnsafeRawBufferPointer,
            authenticating data: UnsafeRawBufferPointer
        ) {
            let text = UnsafeMutableRawBufferPointer(rebasing: bytes.dropLast(KeySize.tag))
            deriveKeys(nonce)
            withUnsafeTemporaryAllocation(byteCount: KeySize.tag, alignment: 16) { tag in
                makeTag(tag, of: UnsafeRawBufferPointer(text), authenticating: data, nonce)
                applyStream(of: UnsafeRawBufferPointer(tag), to: text)
                UnsafeMutableRawBufferPointer(rebasing: bytes[text.count...]).copyMemory(
                    from: UnsafeRawBufferPointer(tag))
            }
        }

        /// Section 5, `decrypt`, under the key that is set: returns whether `sealed`, 16 bytes longer than `text`, is
        /// genuine. `text` then holds the plaintext, else zeros.
        package func open(
            _ sealed: UnsafeRawBufferPointer, nonce: UnsafeRawBufferPointer,
            authenticating data: UnsafeRawBufferPointer,
            into text: UnsafeMutableRawBufferPointer
        ) -> Bool {
            let tag = UnsafeRawBufferPointer(rebasing: sealed.suffix(KeySize.tag))
            text.copyMemory(from: UnsafeRawBufferPointer(rebasing: sealed.dropLast(KeySize.tag)))
            deriveKeys(nonce)
            applyStream(of: tag, to: text)
            let isGenuine = withUnsafeTemporaryAllocation(byteCount: KeySize.tag, alignment: 16) { expected in
                makeTag(expected, of: UnsafeRawBufferPointer(text), authenticating: data, nonce)
                return SecretBytes.areEqual(UnsafeRawBufferPointer(expected), tag)
            }
            if !isGenuine { SecretBytes.wipe(text) }
            return isGenuine
        }

        /// Section 4, `derive_keys`: sets the two keys derived from the current key and this nonce.
        private func deriveKeys(_ nonce: UnsafeRawBufferPointer) {
            precondition(nonce.count == KeySize.nonce)
            withUnsafeTemporaryAllocation(byteCount: 6 * Self.blockSize, alignment: 16) { blocks in
                defer { SecretBytes.wipe(blocks) }
                for index in 0..<6 {
                    let start = index * Self.blockSize
                    blocks.storeBytes(of: UInt32(index).littleEndian, toByteOffset: start, as: UInt32.self)
                    UnsafeMutableRawBufferPointer(rebasing: blocks[(start + 4)...]).copyMemory(from: nonce)
                }
                encrypt(blocks)
                // The keys consist of the first halves.
                for index in 1..<6 {
                    let half = blocks.load(fromByteOffset: index * Self.blockSize, as: UInt64.self)
                    blocks.storeBytes(of: half, toByteOffset: index * Self.blockSize / 2, as: UInt64.self)
                }
                setPolyvalKey(UnsafeRawBufferPointer(rebasing: blocks[..<Self.blockSize]))
                setKey(UnsafeRawBufferPointer(rebasing: blocks[Self.blockSize..<3 * Self.blockSize]))
            }
        }

        /// Section 4, the first half of `encrypt`: the tag, which is also the start of the key stream.
        private func makeTag(
            _ tag: UnsafeMutableRawBufferPointer, of text: UnsafeRawBufferPointer,
            authenticating data: UnsafeRawBufferPointer, _ nonce: UnsafeRawBufferPointer
        ) {
            polyval(data, text, into: tag)
            for index in nonce.indices { tag[index] ^= nonce[index] }
            tag[15] &= 0x7F
            encrypt(tag)
        }

        /// Section 4, `AES_CTR`: adds the key stream, which starts at the tag and counts in the first four bytes.
        private func applyStream(of tag: UnsafeRawBufferPointer, to text: UnsafeMutableRawBufferPointer) {
            let low = UInt64(littleEndian: tag.loadUnaligned(as: UInt64.self))
            let high = tag.loadUnaligned(fromByteOffset: 8, as: UInt64.self) | UInt64(bigEndian: 0x80)
            var counter = UInt32(truncatingIfNeeded: low)
            for start in stride(from: 0, to: text.count, by: Self.chunkSize) {
                let part = UnsafeMutableRawBufferPointer(
                    rebasing: text[start..<min(start + Self.chunkSize, text.count)])
                let size = (part.count + Self.blockSize - 1) / Self.blockSize * Self.blockSize
                for offset in stride(from: 0, to: size, by: Self.blockSize) {
                    let word = low & ~UInt64(UInt32.max) | UInt64(counter)
                    chunk.storeBytes(of: word.littleEndian, toByteOffset: offset, as: UInt64.self)
                    chunk.storeBytes(of: high, toByteOffset: offset + 8, as: UInt64.self)
                    counter &+= 1
                }
                encrypt(UnsafeMutableRawBufferPointer(rebasing: chunk[..<size]))
                var offset = 0
                while offset + 8 <= part.count {
                    let word = part.loadUnaligned(fromByteOffset: offset, as: UInt64.self)
                    let mask = chunk.load(fromByteOffset: offset, as: UInt64.self)
                    part.storeBytes(of: word ^ mask, toByteOffset: offset, as: UInt64.self)
                    offset += 8
                }
                for index in offset..<part.count { part[index] ^= chunk[index] }
            }
        }

        // MARK: POLYVAL (section 3) by GHASH (appendix A)

        /// `mulX_GHASH(ByteReverse(H))`: GHASH reads bits in the opposite order and is off by one power of x.
        private func setPolyvalKey(_ key: UnsafeRawBufferPointer) {
            let low = UInt64(littleEndian: key.loadUnaligned(as: UInt64.self))
            let high = UInt64(littleEndian: key.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
            let reduction = (0 &- (low & 1)) & 0xE1 << 56
            withUnsafeTemporaryAllocation(byteCount: Self.blockSize, alignment: 16) { block in
                defer { SecretBytes.wipe(block) }
                block.storeBytes(of: (high >> 1 ^ reduction).bigEndian, as: UInt64.self)
                block.storeBytes(of: (low >> 1 | high << 63).bigEndian, toByteOffset: 8, as: UInt64.self)
                setHashKey(UnsafeRawBufferPointer(block))
            }
        }

        /// POLYVAL of data and text, each padded to whole blocks, and a block of their lengths.
        ///
        /// GHASH ends with a block of its own lengths, in its own order, in place of POLYVAL's. Both are linear, so the
        /// hash of zeros is added, with lengths whose block is the difference of the two.
        private func polyval(
            _ data: UnsafeRawBufferPointer, _ text: UnsafeRawBufferPointer, into digest: UnsafeMutableRawBufferPointer
        ) {
            beginHash()
            let hashed = hashReversed(data) + hashReversed(text)
            endHash(into: digest)
            withUnsafeTemporaryAllocation(byteCount: Self.blockSize, alignment: 16) { difference in
                beginHash()
                hashZeros(hashed ^ text.count, data.count)
                endHash(into: difference)
                let low = digest.load(as: UInt64.self) ^ difference.load(as: UInt64.self)
                let high =
                    digest.load(fromByteOffset: 8, as: UInt64.self)
                    ^ difference.load(fromByteOffset: 8, as: UInt64.self)
                digest.storeBytes(of: high.byteSwapped, as: UInt64.self)
                digest.storeBytes(of: low.byteSwapped, toByteOffset: 8, as: UInt64.self)
            }
        }

        /// Hashes each block in reverse. Returns the number of hashed bytes, including padding.
        private func hashReversed(_ bytes: UnsafeRawBufferPointer) -> Int {
            var hashed = 0
            for start in stride(from: 0, to: bytes.count, by: Self.chunkSize) {
                let part = UnsafeRawBufferPointer(rebasing: bytes[start..<min(start + Self.chunkSize, bytes.count)])
                let whole = part.count / Self.blockSize * Self.blockSize
                for offset in stride(from: 0, to: whole, by: Self.blockSize) {
                    let low = part.loadUnaligned(fromByteOffset: offset, as: UInt64.self)
                    let high = part.loadUnaligned(fromByteOffset: offset + 8, as: UInt64.self)
                    chunk.storeBytes(of: high.byteSwapped, toByteOffset: offset, as: UInt64.self)
                    chunk.storeBytes(of: low.byteSwapped, toByteOffset: offset + 8, as: UInt64.self)
                }
                var size = whole
                if whole < part.count {
                    size += Self.blockSize
                    let block = UnsafeMutableRawBufferPointer(rebasing: chunk[whole..<size])
                    block.initializeMemory(as: UInt8.self, repeating: 0)
                    for index in whole..<part.count { chunk[size - 1 - (index - whole)] = part[index] }
                }
                hash(UnsafeRawBufferPointer(rebasing: chunk[..<size]))
                hashed += size
            }
            return hashed
        }
    }
#endif

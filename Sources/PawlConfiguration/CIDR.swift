/// A block of addresses: `10.0.0.0/8`, `2001:db8::/32`, or one address alone.
package struct CIDR: Sendable, Hashable {
    /// The first address of the block.
    package let network: IPAddress
    /// How many leading bits all its addresses share.
    package let prefix: Int

    init(network: IPAddress, prefix: Int) {
        self.network = network
        self.prefix = prefix
    }

    /// Whether the block holds `address`. Blocks of one family hold no address of the other.
    package func contains(_ address: IPAddress) -> Bool {
        address.family == self.network.family && Self.masked(address, self.prefix) == self.network
    }

    private static func masked(_ address: IPAddress, _ prefix: Int) -> IPAddress {
        let free = address.family.width - prefix
        return IPAddress(family: address.family, bits: free == 128 ? 0 : (address.bits >> free) << free)
    }

    /// Reads a block as an operator writes it.
    init(configuration text: String) throws(Mismatch) {
        let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        guard let address = IPAddress(parts[0]) else {
            throw Mismatch("whose address is neither IPv4 nor IPv6")
        }
        guard parts.count == 2 else {
            self.init(network: address, prefix: address.family.width)
            return
        }
        guard let prefix = Int(parts[1]), parts[1].allSatisfy(\.isNumber), prefix <= address.family.width else {
            throw Mismatch("whose prefix is not a number from 0 to \(address.family.width)")
        }
        let network = Self.masked(address, prefix)
        guard network == address else {
            throw Mismatch("which names a block and an address in it at once; the block is `\(network)/\(prefix)`")
        }
        self.init(network: network, prefix: prefix)
    }
}

extension CIDR: CustomStringConvertible {
    package var description: String { "\(self.network)/\(self.prefix)" }
}

/// A number that two people compare, aloud or by camera, to detect an attacker between them.
///
/// Signal's construction with this library's keys, so the digits differ from those of a Signal client. For each side
/// ```
/// H(1) = SHA-512(version u16 || identity key 32 || account identifier || identity key 32), version 1
/// H(n) = SHA-512(H(n-1) || identity key 32), up to n = 5200
/// ```
/// The first 32 bytes of `H(5200)` are its fingerprint. The iterations make the search for a key with similar digits
/// 5200 times as long. Nothing in it is a secret.
public struct SafetyNumber: Hashable, Sendable, CustomStringConvertible {
    /// One side: an account and its claimed identity.
    public struct Party: Hashable, Sendable {
        let identifier: [UInt8]
        package let key: IdentityKey

        /// - Parameters:
        ///   - identifier: the account's permanent name, in the same bytes on both sides.
        ///   - key: the account's identity key.
        public init(identifier: [UInt8], key: IdentityKey) {
            self.identifier = identifier
            self.key = key
        }

        fileprivate var fingerprint: [UInt8] {
            let key = key.bytes
            var hash = Primitives.sha512([0, SafetyNumber.version] + key + identifier, key)
            for _ in 1..<SafetyNumber.iterations { hash = Primitives.sha512(hash, key) }
            return Array(hash.prefix(SafetyNumber.fingerprintSize))
        }
    }

    /// The result of scanning the other side's code.
    public enum ScanResult: Hashable, Sendable {
        /// Both sides have the same two keys under the same two identifiers.
        case match
        /// They differ: another account was scanned, a key has changed, or an attacker is between the sides.
        case mismatch
        /// A code of another version: update one of the two programs.
        case unsupportedVersion
        /// Not a code of this kind.
        case malformed
    }

    /// The length of ``scannable`` in bytes.
    public static let scannableByteCount = 65
    private static let version: UInt8 = 1
    private static let iterations = 5200
    private static let fingerprintSize = 32

    /// 60 decimal digits, 30 of each side, the lower 30 first: the same on both sides.
    public let digits: String

    /// The code to scan: 65 bytes, the same on both sides.
    ///
    /// ```
    /// 0         1                33
    /// | version | fingerprint 32 | fingerprint 32 |
    /// ```
    /// Version 1; the lower fingerprint in byte order comes first.
    public let scannable: [UInt8]

    /// Computes the number of two parties, in either order. Takes 10,400 hashes.
    public init(_ one: Party, _ other: Party) {
        let fingerprints = [one.fingerprint, other.fingerprint]
        digits = fingerprints.map(Self.digits).sorted().joined()
        let ordered = fingerprints.sorted { $0.lexicographicallyPrecedes($1) }
        scannable = [Self.version] + ordered[0] + ordered[1]
    }

    /// The digits in 12 groups of five, separated by spaces.
    public var description: String {
        let digits = Array(digits)
        return stride(from: 0, to: digits.count, by: 5).map { String(digits[$0..<$0 + 5]) }.joined(separator: " ")
    }

    /// Compares with the code of the other side, in time that depends on its length and version only.
    public func matches(scanned code: Span<UInt8>) -> ScanResult {
        guard code.count > 0 else { return .malformed }
        guard code[0] == Self.version else { return .unsupportedVersion }
        guard code.count == Self.scannableByteCount else { return .malformed }
        var difference: UInt8 = 0
        for index in 0..<code.count { difference |= code[index] ^ scannable[index] }
        return difference == 0 ? .match : .mismatch
    }

    /// 30 digits: six times five bytes as a big-endian number, modulo 100,000.
    private static func digits(_ fingerprint: [UInt8]) -> String {
        stride(from: 0, to: 30, by: 5).map { start in
            let number = fingerprint[start..<start + 5].reduce(UInt64(0)) { $0 << 8 | UInt64($1) } % 100_000
            return String(String(100_000 + number).dropFirst())
        }.joined()
    }
}

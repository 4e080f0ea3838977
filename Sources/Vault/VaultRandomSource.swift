// The randomness of a vault. It is one type for every source: a vault with a parameter of type would make generic types of
// all participants, and the compiler makes no specialised copies of those across modules.

package import DoubleRatchet

/// The operating system's generator in a program, a seeded one in a test.
package struct VaultRandomSource: RandomSource {
    private var source: any RandomSource

    package init(_ source: some RandomSource) { self.source = source }

    package mutating func fill(_ bytes: UnsafeMutableRawBufferPointer) { source.fill(bytes) }
}

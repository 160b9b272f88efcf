// Reads a folder of pictures with a folder for each class, as torchvision's ImageFolder does:
//
//   FOLDER/cat/1.jpg, FOLDER/cat/more/2.png, FOLDER/dog/3.jpeg
//
// Classes are numbered in the order of the bytes of their names. Files that end in .jpg, .jpeg or
// .png are pictures, in the order of their folders and names; others are left out, with a warning
// that counts them. Links are followed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/data/transforms.h"

namespace weft::data {

struct Picture {
  std::string path;
  int64_t label = 0;
  uint64_t bytes = 0;  // of the file
};

struct ImageFolder {
  std::string path;
  std::vector<std::string> classes;  // by label
  std::vector<Picture> pictures;
};

// `known`: the classes of an earlier part of the run, which are the labels; another one is an
// error, and one without a folder here has no pictures. Throws Error(data) for a folder that has no
// classes, a class that has no pictures, and for folders that are nested deeper than 32 levels.
ImageFolder read_image_folder(const std::string& path,
                              const std::optional<std::vector<std::string>>& known = {});

// Returns whether a path ends as those of pictures do.
bool is_picture(const std::string& path);
// Returns the pictures of a folder, then those of the folders in it, by name. Throws Error(data)
// for a folder that has none, or that is nested deeper than 32 levels.
std::vector<std::string> pictures_below(const std::string& folder);

// Returns the shape [C, H, W] that the first picture has, before transforms.
Shape first_shape(const ImageFolder& folder, int channels);

// Returns the pictures at `indices`. A picture is decoded whenever its sample is written, in the
// thread of the loader, so that bytes() is that of the list of files alone; write() takes memory
// for one decoded picture. write() throws Error(data) that names the file. The fingerprint is one
// of names, labels and sizes of the files, not of their contents.
std::shared_ptr<const Source> image_folder_source(std::shared_ptr<const ImageFolder> folder,
                                                  std::vector<int64_t> indices,
                                                  ImageTransform transform);

}  // namespace weft::data
